"""`cbtui lesson` and `cbtui race` without a terminal: the list, and sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cbtui.cli.console import CommandError
from cbtui.cli.sources import requests_of
from cbtui.lessons.scenes import LESSONS
from engine.workload import WorkloadError


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


def test_a_race_takes_json_lines_or_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("one\ntwo\n")
    assert [(r.prompt, r.max_tokens) for r in requests_of(str(file), None, 64)] == [("one", 64), ("two", 64)]
    file.write_text('{"prompt": "one", "output_tokens": 9}\n{"prompt": "two", "output_tokens": 3}\n')
    assert [r.max_tokens for r in requests_of(str(file), 5, 64)] == [5, 3]


def test_a_race_needs_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    with pytest.raises(CommandError):
        requests_of(str(file), None, 64)
    file.write_text('{"prompt": "one", "output_tokens": 9}\n{"output_tokens": 3}\n')
    with pytest.raises(WorkloadError, match="line 2"):
        requests_of(str(file), None, 64)
