"""The time between a request's successive output tokens, as columns on one scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cbtui.looks.bars import column
from cbtui.looks.pieces import Line
from cbtui.telling.words import seconds
from engine.stream.ledger import RequestStory

#: Cells of a column and of the gap after it.
BAR, SPACE = 2, 1
_GUTTER = 8


def gaps_of(story: RequestStory) -> list[float]:
    """Seconds between output tokens, the first gap first."""
    return story.gaps_s()


def newest_gaps(gaps: Sequence[float], longest_s: float, colour: str, cells: int, height: int) -> list[Line]:
    """The newest gaps that fit, a column each, on a scale up to `longest_s`; its size at the left."""
    if height < 2:
        return []
    shown = list(gaps)[-max(1, (cells - _GUTTER) // (BAR + SPACE)) :]
    rows = height - 1
    lines: list[Line] = []
    for row in range(rows):
        floor = rows - 1 - row
        cell = "".join(column(gap / longest_s * rows - floor) * BAR + " " * SPACE for gap in shown)
        label = f"{longest_s * 1000:,.0f} ms".rjust(_GUTTER - 1) if row == 0 else " " * (_GUTTER - 1)
        lines.append(((f"{label} ", "dim"), (cell, f"fill:{colour}")))
    foot = "".join("▔" * BAR + " " * SPACE for _ in shown)
    lines.append(((f"{'0'.rjust(_GUTTER - 1)} ", "dim"), (foot, "track")))
    return lines


def binned(values: Sequence[float], columns: int) -> list[float]:
    """At most `columns` values: where there are more, each is the largest of its share: no spike is lost."""
    if len(values) <= columns:
        return list(values)
    edges = [number * len(values) // columns for number in range(columns + 1)]
    return [max(values[start:stop]) for start, stop in pairwise(edges)]


def all_gaps(values: Sequence[float], colour: str, cells: int, height: int) -> list[Line]:
    """All of a request's gaps, in columns from 0 to the largest one, which stands at the left.

    Args:
        values: seconds, oldest first.
        colour: of the request.
    """
    top = max(values, default=0.0)
    if top <= 0 or height < 1:
        return []
    label = seconds(top)
    gutter = len(label) + 1
    shown = binned(values, max(1, cells - gutter - 1))
    lines: list[Line] = []
    for floor in range(height - 1, -1, -1):
        cell = "".join(column(value / top * height - floor) for value in shown)
        name = label if floor == height - 1 else "0" if floor == 0 else ""
        lines.append(((name.rjust(gutter - 1) + " ", "dim"), ("▏", "track"), (cell, f"fill:{colour}")))
    return lines
