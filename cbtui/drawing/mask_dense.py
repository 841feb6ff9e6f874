"""Draws the mask with two queries a line: a cell is a column wide and half a row high. Pure.

The shapes stay those of the other scales where both queries agree (`█` new, `▒` cached, `·` blocked, `╳`
padding); where they differ, `▀` and `▄` say which of them may look.
"""

from __future__ import annotations

from itertools import pairwise

from cbtui.drawing.mask import BLOCKED, CACHED, NEW, PADDING, MaskDrawing
from cbtui.drawing.mask_layout import cell_layout
from cbtui.drawing.mask_shapes import Grid, Keys
from cbtui.drawing.window import LineWriter
from cbtui.telling.naming import Badges
from engine.step.mask import query_run
from engine.stream.records import Segment, StepRecord

#: What one half of a place shows: the request's colour, with `~` before it if cached; nothing; padding.
_NOTHING, _PADDING = "", "padding"


class DenseMask(MaskDrawing):
    """The same picture as cells of one column, at half the height."""

    per_line = 2

    @property
    def title(self) -> str:
        return f"{super().title}, half-block cells"

    def _cells(self, writer: LineWriter, grid: Grid, segment: int | None, query: int) -> None:
        lower = self._segment_at(grid.row, query + 1)
        is_below = query + 1 < self._record.shape[1]
        runs = (self._run(segment, query), self._run(lower, query + 1) if is_below else (0, 0))
        owners = (segment, lower)
        for keys in grid.keys:
            writer.fill(" ", keys.gap, "")
            edges = sorted(
                {keys.start, keys.stop, *(e for run in runs for e in run if keys.start < e < keys.stop)}
            )
            for start, stop in pairwise(edges):
                halves = tuple(
                    self._half(keys, owner, run[0] <= start < run[1])
                    for owner, run in zip(owners, runs, strict=True)
                )
                if not is_below:
                    halves = (halves[0], _NOTHING)
                glyph, style = self._place(halves[0], halves[1])
                writer.fill(glyph, stop - start, style)

    def _run(self, segment: int | None, query: int) -> tuple[int, int]:
        if segment is None:
            return 0, 1
        found = self._record.segments[segment]
        return query_run(found, query - found.q_start, self._window)

    def _half(self, keys: Keys, segment: int | None, allowed: bool) -> str:
        badge = self._badge(segment)
        if badge is None or segment is None:
            return _PADDING
        if not allowed:
            return _PADDING if keys.kind == "padding" else _NOTHING
        is_dim = keys.kind == "cached" or self._record.segments[segment].kind == "dead"
        return f"{'~' if is_dim else ''}{badge.colour}"

    def _place(self, upper: str, lower: str) -> tuple[str, str]:
        """Glyph and style of a place by its two halves."""
        if upper == lower:
            if upper == _NOTHING:
                return BLOCKED, "faint"
            if upper == _PADDING:
                return PADDING, "padding"
            return (CACHED if upper[0] == "~" else NEW), f"block:{upper.lstrip('~')}"
        if upper == _NOTHING:
            return "▄", f"half:{lower}"
        if lower == _NOTHING:
            return "▀", f"half:{upper}"
        return "▀", f"half:{upper}/{lower}"


def _no_text(segment: Segment) -> str:
    return ""


def dense_cells(record: StepRecord, badges: Badges, window: int | None = None) -> DenseMask:
    """The mask at two queries a line, one column a key."""
    return DenseMask(record, badges, cell_layout(record, badges, 1, per_line=2), _no_text, window)
