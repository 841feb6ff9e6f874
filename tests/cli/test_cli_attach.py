"""The command line of `cbtui attach`: what is refused before anything opens, and where a key comes from."""

from __future__ import annotations

import pytest

from cbtui.__main__ import run
from cbtui.options import LaunchOptions
from engine.attach.address import Key


@pytest.mark.parametrize(
    "words", [["http://me:hunter2@host"], ["ftp://host"], ["unix:"], [""], ["host", "--theme", "none"]]
)
def test_a_bad_word_is_one_sentence_and_opens_nothing(
    words: list[str], opened: list[LaunchOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attach", *words]) == 2
    out, err = capsys.readouterr()
    assert not opened and not out and err.count("\n") == 1 and "hunter2" not in err


def test_what_was_said_reaches_the_screen(opened: list[LaunchOptions]) -> None:
    assert run(["attach", "127.0.0.1:8080", "--paused", "--max-tokens", "9", "--temperature", "0.5"]) == 0
    [options] = opened
    assert str(options.attach) == "http://127.0.0.1:8080" and options.paused and options.key is None
    assert options.max_tokens == 9 and options.asked.temperature == 0.5


def test_a_key_is_asked_for_without_being_shown(
    opened: list[LaunchOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ["hunter2", ""]
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop(0))
    assert run(["attach", "host", "--ask-key"]) == 0
    assert opened[0].key == Key("hunter2") and "hunter2" not in repr(opened[0])
    assert run(["attach", "host", "--ask-key"]) == 2
    assert "no key was typed" in capsys.readouterr().err
