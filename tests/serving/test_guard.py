"""Who is let in, by Host and Origin."""

from __future__ import annotations

import pytest

from cbtui.serving.guard import guard_for, is_loopback

HERE = guard_for("127.0.0.1")
OPEN = guard_for("0.0.0.0", ["Lab.example.org"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.4", "example.org", "localhost.example.org", ""])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1:443", "localhost"]
)
def test_its_own_names(host: str) -> None:
    assert HERE.refusal(host, None, needs_origin=False) == ""
    assert HERE.refusal(host, f"http://{host}", needs_origin=True) == ""
    assert OPEN.refusal(host, f"https://{host}", needs_origin=True) == ""


@pytest.mark.parametrize(
    "host",
    [
        None, "", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example:8000",
        "192.168.0.4:8000", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::1", "localhost evil",
        ":8000",
    ],
)  # fmt: skip
def test_other_names_even_if_they_lead_here(host: str | None) -> None:
    assert "Host" in HERE.refusal(host, None, needs_origin=False)
    assert "Host" in HERE.refusal(host, f"http://{host}", needs_origin=True)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9000", "http://localhost:8000", "file://", "",
     "http://127.0.0.1:8000.evil.example", "ws://127.0.0.1:8000"],
)  # fmt: skip
def test_pages_of_other_sites(origin: str) -> None:
    assert "Origin" in HERE.refusal("127.0.0.1:8000", origin, needs_origin=False)


def test_a_session_needs_an_origin() -> None:
    assert "no Origin" in HERE.refusal("127.0.0.1:8000", None, needs_origin=True)


def test_an_open_server_takes_addresses_and_its_names_but_no_others() -> None:
    for host in ("192.168.0.4:8000", "[fe80::1]:8000", "lab.example.org:8000"):
        assert OPEN.refusal(host, f"http://{host}", needs_origin=True) == ""
    assert "Host" in OPEN.refusal("evil.example:8000", "http://evil.example:8000", needs_origin=True)
