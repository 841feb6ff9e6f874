"""The real command, on the real model, in a real pseudo-terminal: what a person does in the first minutes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from restored import assert_restored
from terminal import Terminal

pytestmark = pytest.mark.model


def launch(*options: str) -> Terminal:
    return Terminal([sys.executable, "-m", "cbtui", "launch", *options])


def step_of(terminal: Terminal) -> int:
    return int(terminal.wait_for(r"step (\d+)").group(1))


def test_a_first_session(default_model_path: Path) -> None:
    with launch("--slots", "2", "--max-tokens", "40") as terminal:
        terminal.wait_for("type a prompt")
        terminal.press("The capital of France is", "enter", "Name a colour", "enter")
        terminal.wait_for(r"decode +█|decode +▏|\d+/40")
        terminal.press("f5")
        terminal.wait_for("paused")
        paused_at = step_of(terminal)
        terminal.press("f8")
        terminal.wait_for(rf"step {paused_at + 1}\b")
        terminal.press("f6")
        terminal.wait_for("continuous → static")
        terminal.press("f8")
        terminal.wait_for(rf"step {paused_at + 2}\b")
        terminal.wait_for(r"continuous → static when 2 have ended")
        terminal.wait_for(r"Rectangle \[2, 1\]")
        terminal.press("up")
        terminal.wait_for("› +Name a colour")
        terminal.press("up")
        terminal.wait_for("› +The capital of France is")
        terminal.press("down", "down")
        terminal.press("f1")
        terminal.wait_for("Esc closes")
        terminal.press("escape")
        terminal.wait_until_gone("Esc closes")
        terminal.press("tab", "7")
        terminal.wait_for(r"max( tokens)? +7\b")
        terminal.press("escape")
        terminal.press("f5")
        terminal.wait_for("running|idle")
        terminal.press("escape", "/", "Say hello")
        terminal.wait_for("› +Say hello")
        terminal.press("ctrl+q")
        terminal.press("y")
        assert terminal.wait_for_end() == 0
        assert_restored(terminal)


def test_ctrl_c_twice_ends_with_130_and_restores_the_terminal(default_model_path: Path) -> None:
    with launch("--paused") as terminal:
        terminal.wait_for("type a prompt")
        terminal.press("ctrl+c")
        terminal.wait_for("again to quit")
        terminal.press("ctrl+c")
        assert terminal.wait_for_end() == 130
        assert_restored(terminal)


@pytest.mark.long
def test_the_demo_runs_to_its_result_line(default_model_path: Path) -> None:
    with launch("--demo", "--slots", "6", "--speed", "max", "--mode", "static") as terminal:
        terminal.wait_for(r"static: 300 steps, 611 of 1,800 slot-steps", timeout_s=300)
        terminal.press("escape", "q")
        assert terminal.wait_for_end() == 0
        assert_restored(terminal)
