"""What a drawing of the mask is made of: stretches of keys, grids, bands; and how wide each is. Pure.

A drawing is a stack of bands, a band is grids side by side:

- ragged: one band with one grid, all sequences' keys side by side (blocks on the diagonal);
- ragged with too many sequences for that: one band a sequence, its own keys drawn, all others' before and
  behind them folded to a stretch each, so that the blocks still lie on a diagonal;
- padded: one grid a row of the rectangle, side by side, as `[B, 1, L, K]` is; with one query a row they
  are stacked instead, on one key axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cbtui.telling.naming import Badges
from engine.step.mask import query_run
from engine.stream.records import Segment, StepRecord

KeyKind = Literal["padding", "cached", "new", "others"]

#: Queries (and keys) kept at either end of a folded prefill.
ENDS = 4
#: Columns wanted at least for the text of the keys a query looks back at.
NOTE_WIDTH = 16
#: Columns between grids.
GRID_GAP = 2


@dataclass(frozen=True, slots=True)
class Keys:
    """Neighbouring key columns drawn alike.

    Attributes:
        kind: padding, cached before this step, new in it, or those of other sequences.
        segment: number of the sequence they belong to; None: padding, or many.
        start, stop: columns of the key axis.
        columns: terminal columns they take.
        is_folded: drawn as one bar rather than cell by cell.
        label: heading of a bar.
        gap: blank columns before them.
    """

    kind: KeyKind
    segment: int | None
    start: int
    stop: int
    columns: int
    is_folded: bool = False
    label: str = ""
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """Queries [start, stop) left out between two drawn ones; `row` names whose, None: of every grid."""

    start: int
    stop: int


#: A drawn query's column in the token tensor, or a stretch left out.
Row = int | Hidden


@dataclass(frozen=True, slots=True)
class Grid:
    """The keys of one tensor row (or of one sequence of it).

    `has_notes`: the text looked back at stands beside it, with the number of keys if `is_counted`.
    """

    row: int
    keys: tuple[Keys, ...]
    has_notes: bool = False
    is_counted: bool = False

    @property
    def columns(self) -> int:
        return sum(keys.columns + keys.gap for keys in self.keys)


@dataclass(frozen=True, slots=True)
class Band:
    """Grids side by side over the same queries. `has_heading`: key owners stand above."""

    grids: tuple[Grid, ...]
    rows: Sequence[Row]
    has_heading: bool = True


@dataclass(frozen=True, slots=True)
class MaskLayout:
    """A whole drawing.

    Attributes:
        bands: from top to bottom.
        gutter: columns of the queries' labels, before every grid.
        axis: words above stacked bands without headings of their own; empty: none.
    """

    bands: tuple[Band, ...]
    gutter: int
    axis: str = ""

    @property
    def is_folded(self) -> bool:
        """Whether anything is left out or drawn as a bar."""
        return any(
            any(keys.is_folded for grid in band.grids for keys in grid.keys)
            or any(isinstance(row, Hidden) for row in band.rows)
            for band in self.bands
        )

    @property
    def columns(self) -> int:
        """Widest band, without notes."""
        return max(
            (
                sum(self.gutter + grid.columns for grid in band.grids) + GRID_GAP * (len(band.grids) - 1)
                for band in self.bands
            ),
            default=0,
        )


def query_label(letter: str, position: int) -> str:
    """How a query is called: whose, and its place in its own sequence."""
    return f"{letter} p{position}"


def axis_words(record: StepRecord) -> str:
    """What stands above rows of a rectangle that are stacked on one key axis."""
    return f"{record.num_keys} keys a row, as long as the longest"


def gutter_width(record: StepRecord, badges: Badges) -> int:
    """Columns of the longest query label and two blanks."""
    return 2 + max(
        (len(query_label(badges[s.request_id].letter, s.position + s.q_len - 1)) for s in record.segments),
        default=0,
    )


@dataclass(frozen=True, slots=True)
class Way:
    """One way to draw a sequence's keys.

    Attributes:
        cell: columns a key drawn by itself takes.
        has_labels: bars say how many keys they stand for.
        ends: keys kept at either end where many stand side by side, a bar between; None: nothing is folded.
        has_notes: room is left beside the rows.
    """

    cell: int
    has_labels: bool
    ends: int | None
    has_notes: bool


def bar_label(count: int, sign: str = "▒") -> str:
    """A folded bar's heading."""
    return f"{sign}×{count}"


def new_keys(number: int, start: int, count: int, way: Way) -> Iterable[Keys]:
    """A sequence's `count` new keys from column `start` on, in one stretch or folded in the middle."""
    yield from _cells("new", number, start, count, way)


def _cells(kind: KeyKind, number: int, start: int, count: int, way: Way) -> Iterable[Keys]:
    """Keys that some queries see and others do not: cell by cell, or folded in the middle."""
    stop, ends = start + count, way.ends
    if ends is None or count <= 2 * ends + 1:
        yield Keys(kind, number, start, stop, way.cell * count)
        return
    label = bar_label(count - 2 * ends, "█" if kind == "new" else "▒") if ends == ENDS else ""
    # Of a bar without ends two columns are left, so that one can be seen and the other not.
    columns = len(label) + 1 if label else 1 + int(ends == 0)
    if ends:
        yield Keys(kind, number, start, start + ends, way.cell * ends)
    yield Keys(kind, number, start + ends, stop - ends, columns, True, label)
    if ends:
        yield Keys(kind, number, stop - ends, stop, way.cell * ends)


def cached_keys(
    number: int, segment: Segment, window: int | None, way: Way, letter: str = "", shortest_bar: int = 1
) -> Iterable[Keys]:
    """A sequence's cached keys: a bar of those that no query sees any more, for they are outside the window;
    those that some see; a bar of those that all see.

    Args:
        letter: the owner's, where bars name theirs.
        shortest_bar: fewer keys than this are drawn one by one.
    """
    first, new = segment.kv_start, segment.kv_start + segment.num_cached
    seen = min(new, query_run(segment, 0, window)[0])
    by_all = min(new, query_run(segment, segment.q_len - 1, window)[0])
    if seen > first:
        yield _bar(number, first, seen, way, letter + bar_label(seen - first, "·"), shortest_bar)
    if by_all > seen:
        yield from _cells("cached", number, seen, by_all - seen, way)
    if new > by_all:
        yield _bar(number, by_all, new, way, letter + bar_label(new - by_all), shortest_bar)


def _bar(number: int, start: int, stop: int, way: Way, label: str, shortest: int) -> Keys:
    if stop - start < shortest:
        return Keys("cached", number, start, stop, way.cell * (stop - start))
    return Keys("cached", number, start, stop, len(label) + 1 if way.has_labels else 1, True, label)


def note_columns(room: int) -> int:
    """Columns kept free for notes where bars could take any number."""
    return max(NOTE_WIDTH, min(36, room * 2 // 5))
