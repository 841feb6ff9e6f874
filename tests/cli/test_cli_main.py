"""The command itself: exit codes, pipes, signals, start-up, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import cbtui.__main__ as program
from cbtui import __version__
from cbtui.cli.screen_options import steps_per_s
from tests.cli.conftest import Ended
from tests.cli.word_runner import InterruptedRunner

Cbtui = Callable[..., Ended]


def command(*arguments: str) -> tuple[Sequence[str], dict[str, str]]:
    """The real command on a fake model, and its environment."""
    words = "tests.cli.word_runner:WordRunner"
    return (sys.executable, "-m", "cbtui", *arguments), {**os.environ, "CBTUI_TEST_RUNNER": words}


def test_version(cbtui: Cbtui):
    assert cbtui("--version").out == f"cbtui {__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("launch",), ("--demo",), ("--speed", "max")])
def test_without_a_terminal_the_screen_says_what_to_use_instead(cbtui: Cbtui, arguments: tuple[str, ...]):
    ended = cbtui(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "cbtui compare" in ended.err and "cbtui run" in ended.err


def test_a_file_alone_is_one_for_the_screen_and_a_command_goes_before_it(
    cbtui: Cbtui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("prompts.txt", "lesson"):
        (tmp_path / name).write_text("The\n")
    assert "the screen needs a terminal" in cbtui("prompts.txt", "--paused").err
    for missing in ("prompt.txt", "folder/prompts"):
        assert "the screen needs a terminal" in cbtui(missing).err, "a file's name, also where there is none"
    assert cbtui("lesson").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense' (cbtui --help)"),
        (["--nonsense"], "No such option: --nonsense (cbtui launch --help)"),
        (["compare", "--slots", "many"], "(cbtui compare --help)"),
        (["run", "a", "b"], "(cbtui run --help)"),
    ],
)
def test_a_bad_command_line_is_one_sentence_and_exit_code_2(cbtui: Cbtui, arguments: list[str], words: str):
    ended = cbtui(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert words in ended.err


@pytest.mark.parametrize(("speed", "expected"), [("8", 8.0), ("0.5", 0.5), ("max", None), (" MAX ", None)])
def test_a_speed_is_a_number_or_max(speed: str, expected: float | None):
    assert steps_per_s(speed) == expected


@pytest.mark.parametrize("speed", ["0", "-1", "inf", "nan", "fast", ""])
def test_any_other_speed_is_refused(speed: str):
    with pytest.raises(ValueError, match="--speed"):
        steps_per_s(speed)


def test_control_c_is_130_and_closes_the_runner(cbtui: Cbtui):
    ended = cbtui("compare", runner=InterruptedRunner)
    assert (ended.code, ended.out, ended.err) == (130, "", "")
    assert ended.runner is not None and ended.runner.is_closed  # type: ignore[attr-defined]


def test_a_fault_in_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def broken(**_: object) -> int:
        raise AssertionError("a fault")

    monkeypatch.setattr(program, "app", broken)
    with pytest.raises(AssertionError, match="a fault"):
        program.run(["compare"])


@pytest.mark.parametrize("arguments", [("compare",), ("compare", "--json"), ("run", "--json")])
def test_a_reader_that_goes_away_is_no_fault(arguments: tuple[str, ...]):
    words, environment = command(*arguments)
    process = subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"The\n" * 50)
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


def test_the_real_command_prints_the_report_to_a_pipe():
    words, environment = command("compare", "--max-tokens", "8")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert "Timeline" in done.stdout and done.stdout.isascii()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_output_encoding_will_do(encoding: str):
    words, environment = command("run", "--max-tokens", "2")
    environment |= {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        words, env=environment, input="漢字 é\n".encode(), capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_control_c_at_the_real_command():
    words, environment = command("run")
    process = subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that a script runs in the background inherit a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(1.5)  # it waits for prompts
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stderr and process.stderr.read() == b""


def test_help_imports_nothing_heavy():
    code = (
        "import sys, cbtui.__main__ as m\n"
        "assert m.run(['--help']) == 0\n"
        "heavy = {'textual', 'torch', 'transformers', 'tokenizers', 'engine'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [("compare", "--max-tokens", "2", "--json"), ("run", "--json")])
def test_headless_commands_import_neither_textual_nor_torch(arguments: tuple[str, ...]):
    code = (
        "import sys, cbtui.__main__ as m\n"
        f"assert m.run({list(arguments)!r}) == 0\n"
        "heavy = {'textual', 'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    _, environment = command()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        input="The\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
