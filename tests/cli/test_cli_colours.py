"""Colours on a terminal, none where they are not wanted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def on_terminal(*arguments: str, **variables: str) -> bytes:
    """What the real command writes to a terminal."""
    ours, theirs = pty.openpty()
    unwanted = ("NO_COLOR", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {"CBTUI_TEST_RUNNER": "tests.cli.word_runner:WordRunner", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cbtui", *arguments],
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 1 << 16):
            seen += part
    except OSError:
        pass  # its end of a terminal that is gone
    os.close(ours)
    process.communicate(timeout=60)
    return seen


@pytest.mark.parametrize("arguments", [("compare", "--max-tokens", "4"), ("--help",), ("lesson",)])
def test_no_color_is_heeded(arguments: tuple[str, ...]) -> None:
    seen = on_terminal(*arguments, NO_COLOR="1")
    assert len(seen) > 200 and COLOUR.search(seen) is None


@pytest.mark.parametrize("arguments", [("compare", "--max-tokens", "4"), ("--help",)])
def test_without_it_there_are_colours(arguments: tuple[str, ...]) -> None:
    assert COLOUR.search(on_terminal(*arguments)) is not None
