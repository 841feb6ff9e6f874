"""Runs the command line in this process, on a fake model."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cbtui.__main__ import run
from cbtui.cli import models
from cbtui.options import LaunchOptions
from engine.fake import FakeRunner
from tests.cli.word_runner import WordRunner


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str
    runner: FakeRunner | None


@pytest.fixture
def cbtui(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`cbtui(*arguments, stdin=b"", runner=WordRunner)` without a terminal."""

    def call(*arguments: str, stdin: bytes = b"", runner: Callable[[], FakeRunner] = WordRunner) -> Ended:
        made: list[FakeRunner] = []

        def make_runner(spec: object) -> FakeRunner:
            made.append(runner())
            return made[-1]

        monkeypatch.setattr(models, "make_runner", make_runner)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return Ended(code, out, err, made[-1] if made else None)

    return call


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[LaunchOptions]:
    """What screens were opened with, as if there were a terminal; none is."""
    screens: list[LaunchOptions] = []

    def run_app(options: LaunchOptions) -> int:
        screens.append(options)
        return 0

    monkeypatch.setattr("cbtui.opening.run_app", run_app)
    monkeypatch.setattr("cbtui.cli.app.need_terminal", lambda **_: None)
    monkeypatch.setattr("cbtui.cli.screen_options.need_terminal", lambda **_: None)
    monkeypatch.setenv("CBTUI_SETTINGS", "")
    return screens
