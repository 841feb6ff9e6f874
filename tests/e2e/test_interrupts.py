"""Signals, a closed terminal, suspending: the terminal comes back, what was recorded is whole. No model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from restored import assert_restored
from terminal import Terminal

from engine.stream.trace_files import read_trace
from tests.hostile import HOSTILE

ROOT = Path(__file__).parents[2]
CBTUI = [sys.executable, "-m", "cbtui"]
ENV = {
    "CBTUI_TEST_RUNNER": "tests.cli.word_runner:WordRunner",
    "CBTUI_SETTINGS": "",
    "PYTHONPATH": str(ROOT),
    "PS1": "shell> ",
}


def running(*options: str) -> Terminal:
    """The screen at work on a request that takes a while."""
    terminal = Terminal([*CBTUI, "launch", "--raw", "--max-tokens", "900", *options], env=ENV)
    terminal.wait_for("type a prompt")
    terminal.press("hello is so", "enter")
    terminal.wait_for("[1-9][0-9]*/900")
    return terminal


def state_of(pid: int) -> str:
    """A process's state as the kernel writes it: `T` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(terminal: Terminal, *, stopped: bool) -> None:
    """Read on, as a terminal does, until the process is stopped, or is not any more."""
    deadline = time.monotonic() + 30
    while (state_of(terminal.process.pid) == "T") != stopped:
        assert time.monotonic() < deadline, f"the process is {state_of(terminal.process.pid)}"
        terminal.read()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGQUIT, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_it_and_restores_the_terminal(number: signal.Signals, tmp_path: Path) -> None:
    with running("--record", str(tmp_path / "trace.jsonl")) as terminal:
        os.kill(terminal.process.pid, number)
        assert terminal.wait_for_end() == 128 + number
        assert b"Traceback" not in terminal.output
        assert_restored(terminal)
    trace = read_trace(tmp_path / "trace.jsonl")
    assert trace.records and not trace.error


def test_a_closed_terminal_ends_it_and_what_was_recorded_is_whole(tmp_path: Path) -> None:
    terminal = running("--record", str(tmp_path / "trace.jsonl"))
    terminal.hang_up()
    assert terminal.process.wait(20) == 128 + signal.SIGHUP
    trace = read_trace(tmp_path / "trace.jsonl")
    assert trace.records and not trace.error


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states from /proc")
def test_stopped_and_continued_from_outside() -> None:
    with running("--speed", "30") as terminal:
        os.kill(terminal.process.pid, signal.SIGTSTP)
        wait_until(terminal, stopped=True)
        terminal.read()
        assert_restored(terminal)
        os.kill(terminal.process.pid, signal.SIGCONT)
        wait_until(terminal, stopped=False)
        terminal.press("f5")
        terminal.wait_for("paused")
        terminal.press("ctrl+q")
        terminal.wait_for("unfinished")
        terminal.press("y")
        assert terminal.wait_for_end() == 0
        assert_restored(terminal)


def test_ctrl_z_goes_to_the_shell_and_fg_comes_back() -> None:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env=ENV) as terminal:
        terminal.wait_for("shell> ")
        terminal.press(f"{sys.executable} -m cbtui launch --raw --paused", "enter")
        terminal.wait_for("type a prompt")
        terminal.press("half a prompt", "\x1a")
        terminal.wait_for(r"Stopped[^$]*shell> ")
        terminal.press("fg", "enter")
        # All of the screen is drawn again, over what the shell wrote.
        terminal.wait_for(r"(?s)\A(?!.*Stopped).*› +half a prompt")
        terminal.press("ctrl+q")
        terminal.wait_for(r"shell> ")
        terminal.press("exit", "enter")
        assert terminal.wait_for_end() == 0


def test_without_a_shell_ctrl_z_says_so_and_nothing_is_stuck() -> None:
    with Terminal([*CBTUI, "launch", "--raw", "--speed", "max"], env=ENV) as terminal:
        terminal.wait_for("type a prompt")
        terminal.press("\x1a")
        terminal.wait_for("there is no shell to go back to")
        title = terminal.title
        terminal.paste("".join(HOSTILE))
        terminal.wait_for("lines were pasted")
        terminal.press("enter")
        terminal.wait_for("finished .*length")
        terminal.wait_for("○ idle")
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
        assert terminal.title == title, "no text has set the terminal's title"
        assert b"evil.example\x1b" not in terminal.output and b"a title\x07" not in terminal.output


def test_killed_while_recording_the_trace_is_read_up_to_the_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    process = subprocess.Popen(
        [*CBTUI, "run", "-", "--max-tokens", "900", "--record", str(path), "--slots", "64"],
        env={**os.environ, **ENV},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(b"The capital\n" * 500)
    process.stdin.close()
    deadline = time.monotonic() + 30
    while not path.exists() or path.stat().st_size < 20_000:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    trace = read_trace(path)
    assert len(trace.records) > 3
    assert "cut off" in trace.error
