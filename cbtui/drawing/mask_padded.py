"""Lays out the mask of a padded step: B small grids, one a row of the rectangle. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbtui.drawing.mask_shapes import (
    ENDS,
    GRID_GAP,
    NOTE_WIDTH,
    Band,
    Grid,
    Hidden,
    KeyKind,
    Keys,
    MaskLayout,
    Row,
    Way,
    axis_words,
    cached_keys,
    gutter_width,
    new_keys,
    note_columns,
)
from cbtui.telling.naming import Badges
from engine.step.mask import query_run
from engine.stream.records import StepRecord


def fold_padded(
    record: StepRecord, badges: Badges, width: int, height: int, window: int | None, has_notes: bool
) -> MaskLayout:
    """The grids side by side, folded just so far that they fit, in as many bands as needed."""
    gutter = gutter_width(record, badges)
    if record.shape[1] == 1:
        return _stacked(record, gutter, width, window, has_notes)
    grids: list[Grid] = []
    for folds, ends, cell in (
        (False, None, 2),
        (True, None, 2),
        (False, None, 1),
        (True, None, 1),
        (True, ENDS, 2),
        (True, ENDS, 1),
    ):
        way = Way(cell, True, ends, False)
        grids = [
            Grid(s.row, tuple(_rectangle_keys(record, n, way, folds, window)))
            for n, s in enumerate(record.segments)
        ]
        if sum(gutter + g.columns for g in grids) + GRID_GAP * (len(grids) - 1) <= width:
            break
    grouped = _in_lines(grids, gutter, width)
    budget = height // max(1, len(grouped)) - 1
    bands = [Band(tuple(group), _fold_rectangle(record, group, budget)) for group in grouped]
    return MaskLayout(tuple(bands), gutter)


def _rectangle_keys(
    record: StepRecord, number: int, way: Way, folds: bool, window: int | None
) -> Iterable[Keys]:
    """One row's keys: left padding, cached, new. The padding key that padding queries see stays apart."""
    segment = record.segments[number]
    padding = segment.kv_start
    if not folds or padding <= 2:
        if padding:
            yield Keys("padding", None, 0, padding, way.cell * padding)
    else:
        apart = int(segment.q_start > 0)
        if apart:
            yield Keys("padding", None, 0, 1, way.cell)
        label = f"╳×{padding - apart}"
        yield Keys("padding", None, apart, padding, len(label) + 1, True, label)
    new = segment.kv_start + segment.num_cached
    if segment.num_cached and not folds:
        yield Keys("cached", number, segment.kv_start, new, way.cell * segment.num_cached)
    elif segment.num_cached:
        yield from cached_keys(number, segment, window, way, shortest_bar=3)
    yield from new_keys(number, new, segment.q_len, way)


def _in_lines(grids: list[Grid], gutter: int, width: int) -> list[list[Grid]]:
    lines: list[list[Grid]] = []
    used = 0
    for grid in grids:
        size = gutter + grid.columns
        if lines and used + GRID_GAP + size <= width:
            lines[-1].append(grid)
            used += GRID_GAP + size
        else:
            lines.append([grid])
            used = size
    return lines


def _fold_rectangle(record: StepRecord, grids: list[Grid], budget: int) -> Sequence[Row]:
    """Rows of a rectangle: all if they fit, else its ends and every row where padding turns into tokens."""
    length = record.shape[1]
    if length <= budget:
        return range(length)
    rows_of_band = {grid.row for grid in grids}
    edges = {s.q_start for s in record.segments if s.row in rows_of_band and s.q_start}
    rows: list[Row] = []
    for ends in (ENDS, 3, 2, 1):
        kept = {*range(min(ends, length)), *range(max(0, length - ends), length)}
        rows = _with_hidden(sorted(kept | edges | {edge - 1 for edge in edges}))
        if len(rows) <= budget:
            break
    return rows


def _with_hidden(kept: Sequence[int]) -> list[Row]:
    """Kept rows and what is left out between them; a single row is not worth leaving out."""
    rows: list[Row] = []
    at = 0
    for row in kept:
        if row - at == 1:
            rows.append(at)
        elif row > at:
            rows.append(Hidden(at, row))
        rows.append(row)
        at = row + 1
    return rows


def _stacked(record: StepRecord, gutter: int, width: int, window: int | None, has_notes: bool) -> MaskLayout:
    """One query a row: the grids one under the other, all on one key axis, so that padding lines up."""
    keys = record.num_keys
    is_wide = has_notes and width - gutter > 2 * NOTE_WIDTH
    note = note_columns(width - gutter) + 2 if is_wide else 0
    room = max(4, width - gutter - note)
    cell = 2 if 2 * keys <= room else 1
    scale = min(float(cell), (room - cell) / max(1, keys - 1))
    end = round(scale * (keys - 1))
    folded = scale < cell
    bands = []
    for number, segment in enumerate(record.segments):
        start, new = segment.kv_start, segment.kv_start + segment.num_cached
        seen = min(new, query_run(segment, 0, window)[0])
        found: list[Keys] = []
        # What ends before the new key, from the right: each stretch keeps a column of its own, however
        # short it is against the axis.
        right = end
        stretches: tuple[tuple[KeyKind, int, int], ...] = (
            ("cached", seen, new),
            ("cached", start, seen),
            ("padding", 0, start),
        )
        for kind, low, high in stretches:
            if low == high:
                continue
            left = min(round(scale * low), right - 1) if low else 0
            left = max(left, int(low > start) + int(start > 0 and kind == "cached"))
            owner = None if kind == "padding" else number
            found.insert(0, Keys(kind, owner, low, high, max(1, right - left), folded))
            right = left
        found.append(Keys("new", number, new, new + segment.q_len, cell))
        grid = Grid(segment.row, tuple(found), bool(note), is_counted=True)
        bands.append(Band((grid,), [0], has_heading=False))
    return MaskLayout(tuple(bands), gutter, axis_words(record))
