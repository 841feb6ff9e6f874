"""Where a cell of the mask stands on screen, and which cell stands at a place: what a cursor needs. Pure.

An `Area` is a cell in the model's terms (queries × keys), a `Spot` its place in a drawing, an `Anchor` the
same cell by owner and position, so that a cursor stays with its token while steps go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cbtui.drawing.mask_shapes import GRID_GAP, Band, Hidden, Keys, Row
from cbtui.looks.pieces import Line
from engine.stream.records import Segment, StepRecord


@dataclass(frozen=True, slots=True)
class Area:
    """Queries [query, query_stop) × keys [key, key_stop) of one row of the token tensor.

    A drawn cell is one query and one key; a folded bar is many keys, a cell of an overview many of both.
    """

    row: int
    query: int
    query_stop: int
    key: int
    key_stop: int


@dataclass(frozen=True, slots=True)
class Spot:
    """A cell's place in a drawing: `y` counts rows of cells (`per_line` of them share a line), `x` columns
    of the unscrolled picture, labels included."""

    y: int
    x: int
    columns: int


class Drawing(Protocol):
    """One step's mask on some scale. Lines are made one at a time, for the visible window only.

    Attributes:
        title: the panel's.
        count, columns: lines under the heading, and their width without notes.
        per_line: rows of cells that share a line.
        fixed: columns at the left that stay while the rest scrolls.
    """

    @property
    def title(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def per_line(self) -> int: ...
    @property
    def fixed(self) -> int: ...

    def heading(self, first: int, width: int) -> Line:
        """The line above everything, from column `first` on."""

    def line(self, y: int, first: int, width: int) -> Line:
        """Body line `y`, in a window of `width` columns from column `first` on."""

    def area(self, y: int, x: int) -> Area | None:
        """What stands at a spot's `y` and `x`; None: a label, a gap, nothing."""

    def spot(self, area: Area) -> Spot | None:
        """Where the first cell of an area is drawn, or what is drawn in its place."""


def moved(drawing: Drawing, spot: Spot, dx: int, dy: int) -> Spot:
    """The next drawn cell in a direction, over gaps and headings; the same at the edge."""
    if dx:
        x = spot.x + spot.columns if dx > 0 else spot.x - 1
        while 0 <= x < drawing.columns:
            if (area := drawing.area(spot.y, x)) is not None:
                return drawing.spot(area) or spot
            x += dx
        return spot
    y = spot.y + dy
    while 0 <= y < drawing.count * drawing.per_line:
        if (area := drawing.area(y, spot.x)) is not None:
            return drawing.spot(area) or spot
        y += dy
    return spot


# -- by owner --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """A cell by whose tokens meet in it; a padding place has no owner and counts in tensor columns.

    `query` counts back from its sequence's last query (0: that one), because that one is sampled;
    `key` is the position in its own sequence.
    """

    row: int
    query_owner: str
    query: int
    key_owner: str
    key: int


def owner_of_query(record: StepRecord, row: int, query: int) -> Segment | None:
    """The sequence a query belongs to; None: padding."""
    return next(
        (s for s in record.segments if s.row == row and s.q_start <= query < s.q_start + s.q_len), None
    )


def owner_of_key(record: StepRecord, row: int, key: int) -> Segment | None:
    """The sequence a key belongs to; None: padding."""
    return next(
        (s for s in record.segments if s.row == row and s.kv_start <= key < s.kv_start + s.kv_len), None
    )


def key_position(segment: Segment, key: int) -> int:
    """A key's place in its own sequence."""
    return segment.position + segment.q_len - segment.kv_len + key - segment.kv_start


def anchor_of(record: StepRecord, area: Area) -> Anchor:
    """The anchor of an area's first cell."""
    query, key = owner_of_query(record, area.row, area.query), owner_of_key(record, area.row, area.key)
    return Anchor(
        area.row,
        query.request_id if query else "",
        query.q_start + query.q_len - 1 - area.query if query else area.query,
        key.request_id if key else "",
        key_position(key, area.key) if key else area.key,
    )


def area_of(record: StepRecord, anchor: Anchor | None) -> Area:
    """The cell of an anchor in some step, or the nearest that still exists.

    Without an anchor, or when its sequence is gone: the first sequence's last query and its own key.
    """
    by_id = {segment.request_id: segment for segment in record.segments}
    first = record.segments[0]
    asked = by_id.get(anchor.query_owner) if anchor else None
    row = first.row
    if anchor is None or (asked is None and anchor.query_owner):
        asked = first
    if asked is not None:
        row = asked.row
        back = anchor.query if anchor is not None and asked.request_id == anchor.query_owner else 0
        query = asked.q_start + asked.q_len - 1 - min(back, asked.q_len - 1)
    else:
        assert anchor is not None
        row, query = min(anchor.row, record.shape[0] - 1), min(anchor.query, record.shape[1] - 1)
    key = _key_of(record, anchor, row, by_id)
    if key is None:
        own = asked or first
        key = own.kv_start + own.kv_len - 1
    return Area(row, query, query + 1, key, key + 1)


def _key_of(record: StepRecord, anchor: Anchor | None, row: int, by_id: dict[str, Segment]) -> int | None:
    if anchor is None:
        return None
    if not anchor.key_owner:
        return min(anchor.key, record.num_keys - 1)
    owner = by_id.get(anchor.key_owner)
    if owner is None or owner.row != row:
        return None
    offset = anchor.key - key_position(owner, owner.kv_start)
    return owner.kv_start + max(0, min(offset, owner.kv_len - 1))


# -- in a drawing made of bands --------------------------------------------------------------------


def key_at(band: Band, gutter: int, x: int) -> tuple[int, int, int] | None:
    """(tensor row, first key, stop key) drawn at column `x` of a band; None: a label or a gap."""
    column = 0
    for number, grid in enumerate(band.grids):
        column += gutter + (GRID_GAP if number else 0)
        for keys in grid.keys:
            column += keys.gap
            if x < column:
                return None
            if x < column + keys.columns:
                if keys.is_folded:
                    return grid.row, keys.start, keys.stop
                key = keys.start + (x - column) // cell_columns(keys)
                return grid.row, key, key + 1
            column += keys.columns
    return None


def column_of(band: Band, gutter: int, row: int, key: int) -> tuple[int, int] | None:
    """(first column, columns) of a key in a band, the last one drawn if it is beyond; None: not its row."""
    column = 0
    found = None
    for number, grid in enumerate(band.grids):
        column += gutter + (GRID_GAP if number else 0)
        for keys in grid.keys:
            column += keys.gap
            if grid.row == row:
                cell = keys.columns if keys.is_folded else cell_columns(keys)
                if key < keys.stop:
                    inside = 0 if keys.is_folded else max(0, key - keys.start) * cell
                    return column + inside, cell
                found = column + keys.columns - cell, cell
            column += keys.columns
    return found


def row_of(rows: Sequence[Row], query: int) -> int | None:
    """Number of the drawn row of a query; of a hidden one the row after it; None: not among them."""
    if isinstance(rows, range):
        return (query - rows.start) // rows.step if rows.start <= query < rows.stop else None
    for number, row in enumerate(rows):
        if isinstance(row, Hidden):
            if row.start <= query < row.stop:
                return number + 1
        elif row == query:
            return number
    return None


def cell_columns(keys: Keys) -> int:
    """Terminal columns of one key; 1 for a bar."""
    return 1 if keys.is_folded else keys.columns // max(1, keys.stop - keys.start)
