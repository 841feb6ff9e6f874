"""The bottom line, or two: the keys that work now, the most needed ones where there is little room.

On the main screen they depend on whether the prompt has focus; other screens name their own. Clicking a key
does what it does. `key_lines` is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message

from cbtui.following.frame import Frame
from cbtui.keys import SCREEN_KEYS, Key
from cbtui.keys_shown import Remap, as_made, in_bottom_line
from cbtui.looks.pieces import Line, Piece
from cbtui.looks.tokens import cell_width
from cbtui.orders import why_not
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


def key_lines(
    keys: Sequence[Key], cells: int, num_lines: int = 1, *, is_typing: bool = False, is_paused: bool = False
) -> list[KeyLine]:
    """Keys in at most `num_lines` lines of `cells` cells; those of the highest rank are left away first."""
    keys = list(keys)
    rows = _broken(keys, cells, is_typing, is_paused)
    while len(keys) > 1 and (len(rows) > num_lines or _width(rows[0], is_typing, is_paused) > cells):
        worst = max(key.rank for key in keys)
        # Of equals the last goes, so that the line never jumps at its beginning.
        dropped = [key for key in keys if key.rank == worst][-1]
        keys = [
            key for key in keys if key is not dropped and not (dropped.joins and key.label == dropped.label)
        ]
        rows = _broken(keys, cells, is_typing, is_paused)
    return [_drawn(row, is_typing, is_paused) for row in rows]


def _broken(keys: list[Key], cells: int, is_typing: bool, is_paused: bool) -> list[list[Key]]:
    """Lines of keys; those that join stay together."""
    rows: list[list[Key]] = [[]]
    for key in keys:
        if key.joins and rows[-1]:
            head = rows[-1].pop()
            if not rows[-1] or _width([*rows[-1], head, key], is_typing, is_paused) <= cells:
                rows[-1] += [head, key]
            else:
                rows.append([head, key])
        elif rows[-1] and _width([*rows[-1], key], is_typing, is_paused) > cells:
            rows.append([key])
        else:
            rows[-1].append(key)
    return rows


def _drawn(keys: list[Key], is_typing: bool, is_paused: bool) -> KeyLine:
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
    """The bottom lines of a screen, as many as it is high.

    Args:
        keys: what a screen other than the main one names; None: the main screen's.
        remap: gives keys as the user has them.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar { height: 1; background: $background; padding: 0 1; overflow-y: hidden; }
    """

    def __init__(
        self, keys: Sequence[Key] | None = None, *, remap: Remap = as_made, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._keys = keys
        self._remap = remap
        self._is_typing = True
        self._is_paused = False
        self._is_live = True
        #: Ids of keys that can do nothing with what is shown.
        self._left_out: frozenset[str] = frozenset()
        #: What the lines drawn depend on.
        self._made_for: tuple[object, ...] = ()

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._is_paused, self._is_live = frame.state.paused, frame.is_live
        self._left_out = frozenset(key.id for key in SCREEN_KEYS if why_not(frame.state, key))
        self._redraw()

    def show_typing(self, is_typing: bool) -> None:
        """Say which keys work: those for typing, or the single ones."""
        self._is_typing = is_typing
        self._redraw()

    def show_keys(self, keys: Sequence[Key], *, is_paused: bool = False) -> None:
        """Name these keys."""
        self._keys, self._is_paused, self._is_typing = keys, is_paused, False
        self._redraw()

    def on_resize(self) -> None:
        """Other keys have room."""
        super().on_resize()
        self._redraw()

    def _redraw(self) -> None:
        now = (
            self._keys, self._is_typing, self._is_paused, self._is_live, self._left_out, self.line_width,
            self.num_visible,
        )  # fmt: skip
        if now == self._made_for:
            return
        self._made_for = now
        made = self._made()
        self.draw(len(made), lambda y, _: made[y].line if y < len(made) else ())

    def _made(self) -> list[KeyLine]:
        keys = self._keys
        if keys is None:
            keys = in_bottom_line(is_typing=self._is_typing, is_live=self._is_live, remap=self._remap)
            keys = [key for key in keys if key.id not in self._left_out]
        else:
            keys = [key for key in map(self._remap, keys) if key.label]
        return key_lines(
            keys,
            self.line_width,
            max(1, self.num_visible),
            is_typing=self._is_typing and self._keys is None,
            is_paused=self._is_paused,
        )

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the mouse does."""
        offset = event.get_content_offset(self)
        made = self._made()
        if offset is None or offset.y >= len(made):
            return
        owners = made[offset.y].keys
        if offset.x < len(owners) and (key := owners[offset.x]) is not None:
            self.post_message(KeyClicked(key))
