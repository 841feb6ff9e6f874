"""A column for every gap between a request's tokens, on one scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cbtui.looks.pieces import Line
from cbtui.telling.words import seconds

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def binned(values: Sequence[float], columns: int) -> list[float]:
    """At most `columns` values: where there are more, each is the largest of its share: no spike is lost."""
    if len(values) <= columns:
        return list(values)
    edges = [number * len(values) // columns for number in range(columns + 1)]
    return [max(values[start:stop]) for start, stop in pairwise(edges)]


def plot_lines(values: Sequence[float], colour: str, cells: int, height: int) -> list[Line]:
    """Columns from 0 to the largest value, which stands at the left, in `height` lines.

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
        cell = "".join(_part(value / top * height - floor) for value in shown)
        name = label if floor == height - 1 else "0" if floor == 0 else ""
        lines.append(((name.rjust(gutter - 1) + " ", "dim"), ("▏", "track"), (cell, f"fill:{colour}")))
    return lines


def _part(height: float) -> str:
    """What a column of so many cells above this cell's floor fills of it; anything above nothing shows."""
    return _EIGHTHS[min(8, max(0, round(height * 8)))] if height < 1 else "█"
