"""Draws slots over steps. Pure: a `SlotHistory` in, lines out.

One coding everywhere, with colour or without:

    `A` prefill: the request's letter (reversed where there is colour)     `▄` decode
    `░` dead: finished, still fed                                          `·` idle

A column of several steps with a prefill in it shows the letter, else the commonest state. The same line is
readable as plain text, because every stretch begins with its owner's letter. Where the view looks back, what
came after the shown step is faint.
"""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.drawing.slot_history import SlotHistory, State
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, line_width
from cbtui.telling.naming import Badges

DECODE, DEAD, IDLE = "▄", "░", "·"
_MODE, _BARRIER = "│", "┤"

#: The signs and their meaning.
LEGEND: Line = (
    ("A", "reverse"),
    (" prefill  ", "dim"),
    (DECODE, ""),
    (" decode  ", "dim"),
    (DEAD, ""),
    (" dead  ", "dim"),
    (IDLE, ""),
    (" idle", "dim"),
)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """How steps map to columns: the first step drawn, steps a column, the last step drawn.

    `first_step` begins a column of the whole history. `shown`: the step a view that looks back stands at.
    """

    first_step: int
    scale: int
    last_step: int
    shown: int | None = None

    def column(self, step: int) -> int:
        return (step - self.first_step) // self.scale

    def last_of(self, column: int) -> int:
        """The last step of a column."""
        return min(self.last_step, self.first_step + (column + 1) * self.scale - 1)

    @property
    def columns(self) -> int:
        """Columns in use."""
        return self.column(self.last_step) + 1


def gutter_width(num_slots: int) -> int:
    """Columns of the slots' numbers and a blank."""
    return len(str(max(0, num_slots - 1))) + 1


def scale_words(scale: int) -> str:
    """The scale as a title says it."""
    return "1 step a column" if scale == 1 else f"{scale:,} steps a column"


def slot_line(history: SlotHistory, badges: Badges, slot: int, axis: TimeAxis, gutter: int) -> Line:
    """A slot's number and what it did."""
    pieces: list[Piece] = [(f"{slot:>{gutter - 1}} ", "dim")]
    first = (axis.first_step - history.first_step) // axis.scale
    cells = [_cell(state, badges) for state in history.columns(slot, axis.scale, axis.last_step, first)]
    if axis.shown is not None:
        now = axis.column(axis.shown) + 1
        cells[now:] = [(text, "faint") for text, _ in cells[now:]]
    return merged(pieces + cells)


def _cell(state: State, badges: Badges) -> Piece:
    if state.kind == "idle":
        return IDLE, "faint"
    if state.request_id not in badges:  # its story was dropped, and its name with it
        return (DEAD if state.kind == "dead" else DECODE), "dim"
    badge = badges[state.request_id]
    if state.kind == "prefill":
        return badge.cell, f"badge:{badge.colour}"
    return (DECODE if state.kind == "decode" else DEAD), f"block:{badge.colour}"


class _Places:
    """A line of one-cell characters in which things are put where nothing stands yet."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._cells: list[Piece | None] = [None] * max(0, width)

    def put(self, column: int, text: str, style: str, margin: int = 0) -> bool:
        """Put text down if its columns, and `margin` on either side, are free; whether it was."""
        end = column + len(text)
        if column < 0 or end > self._width:
            return False
        if any(self._cells[max(0, column - margin) : end + margin]):
            return False
        self._cells[column:end] = [(character, style) for character in text]
        return True

    def line(self) -> Line:
        last = max((n for n, cell in enumerate(self._cells) if cell), default=-1)
        return merged([cell or (" ", "") for cell in self._cells[: last + 1]])


def band_line(history: SlotHistory, axis: TimeAxis, gutter: int, width: int) -> Line:
    """Mode changes and barriers above their columns: `static     barrier┤    │continuous`."""
    places = _Places(width - gutter)
    _put_marks(places, history, axis)
    for mark in history.marks:
        if mark.step > axis.last_step:
            break
        if mark.step < axis.first_step:
            continue
        column = axis.column(mark.step)
        if mark.kind == "barrier":
            places.put(column - len(mark.text), mark.text, "dim")
        else:
            places.put(column + int(mark.step > axis.first_step), mark.text, "")
    modes = [mark.text for mark in history.marks if mark.kind == "mode" and mark.step < axis.first_step]
    if modes:
        places.put(0, modes[-1], "dim")
    return _after_gutter(places, gutter)


def axis_line(history: SlotHistory, axis: TimeAxis, gutter: int, width: int, *, has_marks: bool) -> Line:
    """Step numbers under their columns; with `has_marks` mode changes and barriers stand among them."""
    places = _Places(width - gutter)
    if has_marks:
        _put_marks(places, history, axis)
    if axis.last_step < axis.first_step:
        return ()
    if axis.shown is not None:
        column, number = axis.column(axis.shown), f"{axis.shown}"
        # The number stands beside its column where there is room.
        any(
            places.put(at, text, "warn")
            for at, text in ((column, "▲" + number), (column - len(number), number + "▲"), (column, "▲"))
        )
    places.put(0, str(axis.first_step), "dim", margin=1 if axis.shown is not None else 0)
    last = str(axis.last_step)
    if axis.columns > 1:
        column = min(axis.columns - 1, width - gutter - len(last))
        margin = 1 if axis.shown is not None else 0
        # Beside a mark, if one is there.
        any(places.put(column + aside, last, "", margin) for aside in (0, 1, 2))
    gap = stride(axis.scale, len(last) + 3)
    for step in range(-(-axis.first_step // gap) * gap, axis.last_step + 1, gap):
        places.put(axis.column(step), str(step), "dim", margin=1)
    return _after_gutter(places, gutter)


def _put_marks(places: _Places, history: SlotHistory, axis: TimeAxis) -> None:
    for mark in history.marks:
        if mark.step > axis.last_step:
            break
        if mark.kind == "barrier":
            places.put(axis.column(mark.step), _BARRIER, "strong")
        elif mark.step > axis.first_step:
            places.put(axis.column(mark.step), _MODE, "strong")


def stride(scale: int, columns: int) -> int:
    """Steps between two numbers: 1, 2 or 5 times a power of ten, at least so many columns apart."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= scale * columns:
                return factor * power
        power *= 10


def _after_gutter(places: _Places, gutter: int) -> Line:
    line = places.line()
    return merged([(" " * gutter, ""), *line]) if line else ()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Which lines a panel of some height has: band, so many slots, axis."""

    has_band: bool
    slots: int
    has_axis: bool


def arrange(height: int, num_slots: int, *, has_marks: bool) -> Arrangement:
    """Slots first; then the axis, then the band. Slots that do not fit scroll."""
    if height >= num_slots + 2:
        return Arrangement(True, num_slots, True)
    if height == num_slots + 1:
        return Arrangement(False, num_slots, True)
    if height <= 1 or height == num_slots:
        return Arrangement(False, min(height, num_slots), False)
    if height >= 4 and has_marks:
        return Arrangement(True, height - 2, True)
    return Arrangement(False, height - 1, True)


def timeline_lines(
    history: SlotHistory, badges: Badges, axis: TimeAxis, width: int, height: int, first_slot: int = 0
) -> list[Line]:
    """A panel's lines; the legend stands at the right of the band or the axis where there is room."""
    gutter = gutter_width(history.num_slots)
    has_marks = len(history.marks) > 1
    plan = arrange(height, history.num_slots, has_marks=has_marks)
    lines: list[Line] = []
    if plan.has_band:
        lines.append(_with_legend(band_line(history, axis, gutter, width), width))
    stop = min(history.num_slots, first_slot + plan.slots)
    lines.extend(slot_line(history, badges, slot, axis, gutter) for slot in range(first_slot, stop))
    if plan.has_axis:
        line = axis_line(history, axis, gutter, width, has_marks=not plan.has_band)
        lines.append(line if plan.has_band else _with_legend(line, width))
    return lines


def _with_legend(line: Line, width: int) -> Line:
    gap = width - line_width(line) - line_width(LEGEND)
    return merged([*line, (" " * gap, ""), *LEGEND]) if gap >= 3 else line
