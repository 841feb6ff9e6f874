"""What the headless commands print to a terminal: texts are data there, too; a pipe gets them as they are."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from rich.text import Text

from cbtui.cli.console import Progress, ReportConsole, complain, json_text
from tests.cli.conftest import Ended
from tests.hostile import HOSTILE, hostile_text, orders

Cbtui = Callable[..., Ended]
ALL = "".join(HOSTILE)


class Tty(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(text: str) -> str:
    file = Tty()
    ReportConsole(file=file, color_system=None, soft_wrap=True, markup=False, emoji=False).print(Text(text))
    return file.getvalue()


@given(hostile_text)
def test_a_report_on_a_terminal_holds_no_orders(text: str) -> None:
    assert not orders(on_terminal(text).replace("\n", "").replace("\t", ""))


@given(hostile_text)
def test_data_and_complaints_hold_no_orders(text: str) -> None:
    assert not orders(json_text({"prompt": text}))
    assert json.loads(json_text({"prompt": text})) == {"prompt": text}
    stream = Tty()
    Progress(stream).say(text)
    assert not orders(stream.getvalue().removeprefix("\r\x1b[2K"))


def test_a_complaint_is_one_line_whatever_stands_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    complain(ALL)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and not orders(said.removesuffix("\n"))


LINE = json.dumps({"prompt": ALL, "custom_id": ALL, "output_tokens": 2}).encode()


@pytest.mark.parametrize("command", ["run -", "run - --json", "run - -o -", "compare -", "compare - --json"])
def test_a_whole_command_on_a_terminal(cbtui: Cbtui, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    ended = cbtui(*command.split(), stdin=LINE)
    assert ended.code == 0, ended.err
    shown = re.sub(r"\x1b\[[\d;]*m", "", ended.out).replace("\n", "")  # rich's own bold and dim
    assert not orders(shown), orders(shown)


def test_a_pipe_gets_an_output_as_it_is(cbtui: Cbtui, tmp_path: Path) -> None:
    ended = cbtui("run", "-", "--json", stdin=LINE)
    assert json.loads(ended.out)["prompt"] == ALL
