"""`cbtui lesson` and `cbtui race` without a terminal: the list, and sentences."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cbtui.lessons.scenes import LESSONS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbtui", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)


def test_lesson_without_a_number_lists_them() -> None:
    done = run("lesson")
    assert done.returncode == 0
    for number, lesson in enumerate(LESSONS, 1):
        assert f"{number}  {lesson.title}\n   {lesson.question}\n" in done.stdout


@pytest.mark.parametrize("number", ["0", "7"])
def test_a_lesson_there_is_not_is_said(number: str) -> None:
    done = run("lesson", number)
    assert done.returncode == 2 and "lessons 1 to 6" in done.stderr


@pytest.mark.parametrize("arguments", [("lesson", "1"), ("race",)])
def test_the_screen_needs_a_terminal(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
