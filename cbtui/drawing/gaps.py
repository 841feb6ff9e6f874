"""The time between a request's successive output tokens as columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cbtui.looks.pieces import Line
from engine.stream.ledger import RequestStory

_EIGHTHS = " ▁▂▃▄▅▆▇█"
#: Cells of a column and of the gap after it.
BAR, SPACE = 2, 1
_GUTTER = 8


def gaps_of(story: RequestStory) -> list[float]:
    """Seconds between output tokens, the first gap first."""
    return [later - earlier for earlier, later in pairwise(story.token_times)]


def gap_lines(gaps: Sequence[float], longest_s: float, colour: str, cells: int, height: int) -> list[Line]:
    """The newest gaps that fit, a column each, on a scale up to `longest_s`; its size at the left."""
    if height < 2:
        return []
    shown = list(gaps)[-max(1, (cells - _GUTTER) // (BAR + SPACE)) :]
    rows = height - 1
    lines: list[Line] = []
    for row in range(rows):
        floor = rows - 1 - row
        cell = "".join(_part(gap / longest_s * rows - floor) * BAR + " " * SPACE for gap in shown)
        label = f"{longest_s * 1000:,.0f} ms".rjust(_GUTTER - 1) if row == 0 else " " * (_GUTTER - 1)
        lines.append(((f"{label} ", "dim"), (cell, f"fill:{colour}")))
    foot = "".join("▔" * BAR + " " * SPACE for _ in shown)
    lines.append(((f"{'0'.rjust(_GUTTER - 1)} ", "dim"), (foot, "track")))
    return lines


def _part(height: float) -> str:
    """What of a cell a column of that height (in cells, from the cell's floor) fills."""
    eighths = round(min(1.0, max(0.0, height)) * 8)
    return _EIGHTHS[eighths]
