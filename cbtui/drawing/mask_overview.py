"""Draws the whole mask in any space: each cell stands for a block of queries × keys. Pure.

A cell is as dark as the share of its block that is allowed (`· ░ ▒ ▓ █`), in the colour of whoever has most
of it. Nothing is counted pair by pair, so a step of thousands of tokens costs what is on screen.
"""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.drawing.mask import BLOCKED, PADDING
from cbtui.drawing.mask_shapes import GRID_GAP, gutter_width, query_label
from cbtui.drawing.mask_spots import Area, Spot, owner_of_key, owner_of_query
from cbtui.drawing.mask_words import allowed_pairs
from cbtui.drawing.window import LineWriter
from cbtui.looks.pieces import Line
from cbtui.telling.naming import Badges
from cbtui.telling.words import count
from engine.stream.records import Segment, StepRecord

#: Shares of a block up to which each sign stands; beyond the last: all of it.
_SHARES = ((0.0, BLOCKED), (0.25, "░"), (0.6, "▒"), (0.999, "▓"))
_ALL = "█"
#: What the signs mean.
OVERVIEW_LEGEND: Line = (("░ ▒ ▓ █", ""), (" how much of the block is allowed", "dim"))
#: Columns a row's grid takes at least when several stand side by side.
_LEAST = 10


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a cell stands for: `queries` × `keys`; grids of `columns` × `lines`, `across` of them beside
    each other."""

    queries: int
    keys: int
    columns: int
    lines: int
    across: int


def scale_for(record: StepRecord, gutter: int, width: int, height: int) -> Scale:
    """The smallest blocks with which everything fits `width` × `height`, or nearly."""
    rows, queries = record.shape
    room = max(1, width - gutter)
    across = max(1, min(rows, (room + GRID_GAP) // (_LEAST + GRID_GAP)))
    bands = -(-rows // across)
    columns = max(1, (room + GRID_GAP) // across - GRID_GAP) if across > 1 else room
    per_key = max(1, -(-record.num_keys // columns))
    per_query = max(1, -(-queries // max(1, height // bands)))
    return Scale(per_query, per_key, -(-record.num_keys // per_key), -(-queries // per_query), across)


class OverviewMask:
    """The mask in blocks; see the module's words.

    Args:
        record, badges: the step and its names.
        width, height: what all of it should fit, the heading line included.
        gutter: columns for labels at the left; 0: none.
        window: keys a query sees in the shown layers; None: all before it.
    """

    per_line = 1

    def __init__(
        self,
        record: StepRecord,
        badges: Badges,
        width: int,
        height: int,
        gutter: int | None = None,
        window: int | None = None,
    ) -> None:
        self._window = window
        self._record = record
        self._badges = badges
        self.fixed = gutter_width(record, badges) if gutter is None else gutter
        self.scale = scale_for(record, self.fixed, width, height - 1)
        bands = -(-record.shape[0] // self.scale.across)
        self.count = bands * self.scale.lines
        across = min(self.scale.across, record.shape[0])
        self.columns = self.fixed + across * (self.scale.columns + GRID_GAP) - GRID_GAP

    @property
    def title(self) -> str:
        """The panel's title, with what a cell stands for."""
        queries, keys = self._record.shape[1], self._record.num_keys
        rows = f"{count(self._record.shape[0], 'row')} of " if self._record.layout == "padded" else ""
        size = f"{count(queries, 'query', 'queries')} × {count(keys, 'key')}"
        one = f"a cell is {self.scale.queries} × {self.scale.keys}"
        return f"Mask {rows}{size}, overview: {one}"

    def heading(self, first: int, width: int) -> Line:
        """Whose the keys are, of the first grids."""
        writer = LineWriter(0, width)
        writer.fill(" ", self.fixed, "")
        for number in range(min(self.scale.across, self._record.shape[0])):
            writer.fill(" ", GRID_GAP if number else 0, "")
            owners = [self._owner(number, column) for column in range(self.scale.columns)]
            for column, owner in enumerate(owners):
                is_first = column == 0 or owners[column - 1] is not owner
                if owner is None:
                    writer.text(PADDING, "padding")
                else:
                    badge = self._badges[owner.request_id]
                    writer.text(badge.cell if is_first else " ", f"badge:{badge.colour}")
        return writer.line()

    def line(self, y: int, first: int, width: int) -> Line:
        """One line of blocks."""
        band, place = divmod(y, self.scale.lines)
        writer = LineWriter(0, width)
        queries = self._queries(place)
        self._label(writer, band * self.scale.across, queries[0])
        rows = range(band * self.scale.across, min((band + 1) * self.scale.across, self._record.shape[0]))
        for number, row in enumerate(rows):
            writer.fill(" ", GRID_GAP if number else 0, "")
            here = [
                s
                for s in self._record.segments
                if s.row == row and s.q_start < queries[1] and s.q_start + s.q_len > queries[0]
            ]
            for column in range(self.scale.columns):
                writer.text(*self._cell(row, queries, column, here))
        return writer.line()

    def area(self, y: int, x: int) -> Area | None:
        """The block drawn at a place."""
        band, place = divmod(y, self.scale.lines)
        grid, column = divmod(x - self.fixed, self.scale.columns + GRID_GAP)
        row = band * self.scale.across + grid
        if x < self.fixed or column >= self.scale.columns or grid >= self.scale.across:
            return None
        if not 0 <= row < self._record.shape[0]:
            return None
        return Area(row, *self._queries(place), *self._keys(column))

    def spot(self, area: Area) -> Spot | None:
        """The block that holds an area's first cell."""
        band, grid = divmod(area.row, self.scale.across)
        x = self.fixed + grid * (self.scale.columns + GRID_GAP) + area.key // self.scale.keys
        return Spot(band * self.scale.lines + area.query // self.scale.queries, x, 1)

    # -- one block -------------------------------------------------------------------------------

    def _queries(self, place: int) -> tuple[int, int]:
        first = place * self.scale.queries
        return first, min(first + self.scale.queries, self._record.shape[1])

    def _keys(self, column: int) -> tuple[int, int]:
        first = column * self.scale.keys
        return first, min(first + self.scale.keys, self._record.num_keys)

    def _owner(self, row: int, column: int) -> Segment | None:
        first, stop = self._keys(column)
        return owner_of_key(self._record, row, (first + stop - 1) // 2)

    def _label(self, writer: LineWriter, row: int, query: int) -> None:
        if not self.fixed:
            return
        owner = owner_of_query(self._record, row, query)
        if owner is None:
            writer.text(PADDING, "padding")
        else:
            badge = self._badges[owner.request_id]
            writer.text(badge.letter, f"badge:{badge.colour}")
            position = owner.position + query - owner.q_start
            writer.text(query_label(badge.letter, position)[len(badge.letter) :], "")
        writer.fill(" ", self.fixed - writer.column, "")

    def _cell(self, row: int, queries: tuple[int, int], column: int, here: list[Segment]) -> tuple[str, str]:
        area = Area(row, *queries, *self._keys(column))
        best, most, allowed = None, 0, 0
        for segment in here:
            pairs = allowed_pairs(segment, area, self._window)
            allowed += pairs
            if pairs > most:
                best, most = segment, pairs
        if best is None:
            is_padding = not here or self._owner(row, column) is None
            return (PADDING, "padding") if is_padding else (BLOCKED, "faint")
        share = allowed / ((queries[1] - queries[0]) * (area.key_stop - area.key))
        sign = next((sign for most_share, sign in _SHARES if share <= most_share), _ALL)
        return sign, f"block:{self._badges[best.request_id].colour}"
