"""Addresses as people type them, and keys that nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.attach.address import Key, key_of, read_address


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost", "http://localhost"),
        ("https://llm.example/v1", "https://llm.example"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("https://host:444/models/one/v1/", "https://host:444/models/one"),
    ],
)
def test_a_server_is_named_the_ways_people_name_it(typed: str, url: str) -> None:
    assert read_address(typed).url == url == str(read_address(typed))


def test_a_socket_is_named_by_its_path() -> None:
    assert read_address("unix:/run/steps").socket == Path("/run/steps")
    assert read_address("unix:///run/steps").socket == Path("/run/steps")
    assert str(read_address("unix:/run/steps")) == "unix:/run/steps"


@pytest.mark.parametrize("typed", ["http://u:hunter2@host", "hunter2@host:80", "https://:hunter2@host/v1"])
def test_credentials_in_an_address_are_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(ValueError, match="CBTUI_API_KEY") as error:
        read_address(typed)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "unix:",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://h/?a=1",
        "http://a b/",
        "[abc]",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_said_in_a_sentence(typed: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        read_address(typed)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = read_address(text)
    except ValueError:
        return
    assert bool(address.url) != bool(address.socket)
    assert "@" not in address.url.partition("://")[2].partition("/")[0]


def test_the_first_key_of_the_environment_is_taken_and_never_printed() -> None:
    key = key_of({"OPENAI_API_KEY": "second", "CBTUI_API_KEY": "first"})
    assert key.secret == "first" and not key_of({}) and not key_of({"CBTUI_API_KEY": ""})
    assert "first" not in repr(key) and "first" not in str(key) and "first" not in repr((key, [key]))
    assert key_of({"OPENAI_API_KEY": "second"}) == Key("second")
