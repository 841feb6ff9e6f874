"""The heads of tabs in one line: number, title, the chosen one in the accent. Takes no focus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message

from cbtui.looks.pieces import Line, clip_line
from cbtui.widgets.lines import LinesView


@dataclass
class TabChosen(Message):
    """A head was clicked; `number` counts from 0."""

    number: int


def heads_line(titles: Sequence[str], chosen: int) -> Line:
    """` 1 Batch  2 Mask …`"""
    pieces: list[tuple[str, str]] = []
    for number, title in enumerate(titles):
        style = "accent" if number == chosen else "dim"
        pieces += [(f" {number + 1} ", style), (f"{title} ", "strong" if number == chosen else "dim")]
    return tuple(pieces)


def heads_cells(titles: Sequence[str]) -> int:
    """Cells the heads take."""
    return sum(len(title) + 4 for title in titles)


class TabHeads(LinesView, can_focus=False):
    """One line of tab heads."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    TabHeads { height: 1; overflow-y: hidden; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._titles: tuple[str, ...] = ()

    def show_tabs(self, titles: Sequence[str], chosen: int) -> None:
        """Draw these heads."""
        self._titles = tuple(titles)
        line = heads_line(titles, chosen)
        self.draw(1, lambda y, cells: clip_line(line, cells))

    def on_click(self, event: events.Click) -> None:
        """Choose the head under the mouse."""
        x = 0
        for number, title in enumerate(self._titles):
            x += len(title) + 4
            if event.x < x:
                self.post_message(TabChosen(number))
                return
