"""In front of everything while the terminal is too small; goes away by itself."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from cbtui.screens.arrangement import SMALL
from cbtui.screens.in_front import InFront


class TooSmallScreen(InFront[None]):
    """Says how large the terminal must be. The engine goes on behind it."""

    def compose(self) -> ComposeResult:
        yield Static(too_small_text(self.app.size), id="too-small")

    def on_resize(self) -> None:
        self.query_one(Static).update(too_small_text(self.app.size))


def too_small_text(size: Size) -> Content:
    """The sentence, short enough for any terminal it can be read on."""
    return Content(f"{size.width}×{size.height} is too small\ncbtui needs {SMALL.width}×{SMALL.height}")
