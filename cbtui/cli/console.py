"""Where a headless command writes: its report on standard output, progress on standard error.

Owns the width and whether the output is plain. A terminal gets colours and block characters; a pipe, a
file, `TERM=dumb` or an output that cannot show them gets ASCII (texts of prompts and models aside) in 80
columns.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cbtui.looks.harmless import harmless, harmless_json
from cbtui.looks.tokens import cell_width, clip, prose
from cbtui.telling.naming import PALETTE, letter_of
from engine.runner import Loading

PLAIN_WIDTH = 80
#: Wider terminals leave the rest empty: a report is read, not scanned from edge to edge.
WIDEST = 100
NARROWEST = 40


class CommandError(Exception):
    """A command cannot do what was asked; the message is one sentence for the user."""


class ReportConsole(Console):
    """A console whose reader may go away (`| head` is no fault of ours), and whose terminal takes no orders
    from the texts it shows. A pipe or a file gets them as they are.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does; what cannot be printed goes, if this is a terminal."""
        for segment in super().render(renderable, options):
            if self.is_terminal and not segment.control:
                yield Segment(harmless(segment.text, "\n\t"), segment.style)
            else:
                yield segment

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


@dataclass(frozen=True, slots=True)
class Look:
    """How a report is drawn: cells a line may take, and whether it is plain."""

    width: int = PLAIN_WIDTH
    is_plain: bool = True

    @property
    def ellipsis(self) -> str:
        return "..." if self.is_plain else "…"

    @property
    def times(self) -> str:
        return "x" if self.is_plain else "×"

    def clip(self, text: str, cells: int) -> str:
        """The beginning of a text in at most `cells` cells, an ellipsis where something was cut."""
        if cell_width(text) <= cells:
            return text
        room = cells - len(self.ellipsis)
        while text and cell_width(text) > room:
            text = text[: max(0, min(len(text) - 1, room))]
        return (text.rstrip() + self.ellipsis)[: max(0, cells)]

    def quoted(self, text: str, cells: int) -> str:
        """A text on one line between quotation marks, made harmless, in at most `cells` cells."""
        escaped = prose(
            text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
        )
        return f'"{self.clip(escaped, cells - 2)}"'


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def badge(index: int) -> Text:
    """A request's letter on its colour."""
    return Text(f" {letter_of(index)} ", style=f"bold #000000 on {colour_of(index)}")


def colour_of(index: int) -> str:
    """A request's colour, `#rrggbb`."""
    return PALETTE[index % len(PALETTE)]


def is_dumb() -> bool:
    """Whether the terminal, if there is one, can only print."""
    return os.environ.get("TERM", "") == "dumb"


def complain(sentence: str) -> None:
    """Say something on standard error, on one line and made harmless: names and causes stand in it."""
    print(f"cbtui: {prose(sentence)}", file=sys.stderr)


def json_text(data: Any) -> str:
    """Data as one line of JSON. What a terminal would act on is escaped, so that any JSON reader sees the
    same and a terminal nothing.
    """
    return harmless_json(msgspec.json.encode(data).decode())


def write_line(text: str) -> None:
    """A line of data on standard output, at once.

    Raises:
        BrokenPipeError: nobody reads it. Without an errno: the command-line library would take one with
            for its own affair.
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise BrokenPipeError from None


def report_console(file: IO[str] | None = None) -> tuple[ReportConsole, Look]:
    """Standard output and how to draw on it."""
    console = ReportConsole(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    is_plain = not console.is_terminal or is_dumb() or not console.encoding.startswith("utf")
    if is_plain:
        return console, Look()
    return console, Look(max(NARROWEST, min(console.width, WIDEST)), is_plain=False)


class Progress:
    """One line on standard error that overwrites itself; nothing where that is no terminal."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_on = self._stream.isatty() and not is_dumb()
        self._shown_at = -1.0
        self._is_shown = False

    def say(self, text: str, *, at_once: bool = True) -> None:
        """Replace the line; `at_once` False lets most of a fast series go by."""
        now = time.monotonic()
        if not self._is_on or (not at_once and now - self._shown_at < 0.1):
            return
        self._shown_at, self._is_shown = now, True
        self._stream.write("\r\x1b[2K" + clip(prose(text), PLAIN_WIDTH - 1))
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._is_shown = False

    def loading(self, loading: Loading) -> None:
        """Say how far loading the model is."""
        amount = ""
        if loading.total:
            scale = 1e6 if loading.unit in ("B", "bytes") else 1
            unit = "MB" if scale > 1 else loading.unit
            amount = f" {loading.done / scale:,.0f}/{loading.total / scale:,.0f} {unit}"
        then = f", then {loading.then}" if loading.then else ""
        self.say(f"{loading.stage}{amount.rstrip()}{then}", at_once=loading.done >= loading.total)
