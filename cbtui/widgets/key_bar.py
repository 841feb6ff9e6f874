"""The bottom line: the keys that work now, the most needed ones where there is little room.

Which keys work depends on whether the prompt has focus. Clicking a key does what it does. `key_line` is
pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message

from cbtui.following.frame import Frame
from cbtui.keys import Key, Remap, as_made, in_bottom_line
from cbtui.looks.pieces import Line, Piece
from cbtui.looks.tokens import cell_width
from cbtui.widgets.lines import LinesView

#: Cells between two keys.
GAP = 3


@dataclass
class KeyClicked(Message):
    """A key of the line was clicked."""

    key: Key


@dataclass(frozen=True, slots=True)
class KeyLine:
    """The line, and which key each cell belongs to."""

    line: Line
    keys: tuple[Key | None, ...]


def key_line(
    cells: int, *, is_typing: bool, is_paused: bool, is_live: bool = True, remap: Remap = as_made
) -> KeyLine:
    """The keys that work now in `cells` cells."""
    keys = in_bottom_line(is_typing=is_typing, is_live=is_live, remap=remap)
    while len(keys) > 1 and _width(keys, is_typing, is_paused) > cells:
        worst = max(key.rank for key in keys)
        # Of equals the last goes, so that the line never jumps at its beginning.
        dropped = [key for key in keys if key.rank == worst][-1]
        keys = [
            key for key in keys if key is not dropped and not (dropped.joins and key.label == dropped.label)
        ]
    pieces: list[Piece] = []
    owners: list[Key | None] = []

    def put(text: str, style: str, owner: Key | None) -> None:
        pieces.append((text, style))
        owners.extend([owner] * cell_width(text))

    for number, key in enumerate(keys):
        if number:
            put(" " if key.joins else " " * GAP, "", None)
        put(_written(key, is_typing), "accent", key)
        if number + 1 == len(keys) or not keys[number + 1].joins:
            put(" " + _label(key, is_paused), "dim", key)
    return KeyLine(tuple(pieces), tuple(owners))


def _written(key: Key, is_typing: bool) -> str:
    return key.typing if is_typing else key.shown


def _label(key: Key, is_paused: bool) -> str:
    return key.label_paused if is_paused and key.label_paused else key.label


def _width(keys: list[Key], is_typing: bool, is_paused: bool) -> int:
    cells = 0
    for number, key in enumerate(keys):
        cells += cell_width(_written(key, is_typing))
        if key.joins:
            cells += 1
        else:
            cells += (GAP if number else 0) + 1 + cell_width(_label(key, is_paused))
    return cells


class KeyBar(LinesView, can_focus=False):
    """The bottom line of the screen."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar { height: 1; padding: 0 1; }
    """

    def __init__(self, *, remap: Remap = as_made, id: str | None = None) -> None:
        super().__init__(id=id)
        self._remap = remap
        self._is_typing = True
        self._is_paused = False
        self._is_live = True

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._is_paused, self._is_live = frame.state.paused, frame.is_live
        self._redraw()

    def show_typing(self, is_typing: bool) -> None:
        """Say which keys work: those for typing, or the single ones."""
        self._is_typing = is_typing
        self._redraw()

    def _redraw(self) -> None:
        self.draw(1, lambda y, cells: self._made(cells).line)

    def _made(self, cells: int) -> KeyLine:
        return key_line(
            cells,
            is_typing=self._is_typing,
            is_paused=self._is_paused,
            is_live=self._is_live,
            remap=self._remap,
        )

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the mouse does."""
        offset = event.get_content_offset(self)
        keys = self._made(self.line_width).keys
        if offset is not None and offset.x < len(keys) and (key := keys[offset.x]) is not None:
            self.post_message(KeyClicked(key))
