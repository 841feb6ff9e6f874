"""What a drawing of the mask is made of: stretches of keys, grids, bands; and how wide each is. Pure.

A drawing is a stack of bands, a band is grids side by side:

- ragged: one band with one grid, all sequences' keys side by side (blocks on the diagonal);
- ragged with too many sequences for that: one band a sequence, each against its own keys only;
- padded: one grid a row of the rectangle, side by side, as `[B, 1, L, K]` is; with one query a row they
  are stacked instead, on one key axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cbtui.telling.naming import Badges
from engine.stream.records import StepRecord

KeyKind = Literal["padding", "cached", "new"]

#: New keys of one sequence up to which none of them is folded.
UNFOLDED = 9
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
        kind: padding, cached before this step, or new in it.
        segment: number of the sequence they belong to; None: padding.
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


def gutter_width(record: StepRecord, badges: Badges) -> int:
    """Columns of the longest query label and two blanks."""
    return 2 + max(
        (len(query_label(badges[s.request_id].letter, s.position + s.q_len - 1)) for s in record.segments),
        default=0,
    )


@dataclass(frozen=True, slots=True)
class Way:
    """One way to draw a sequence's keys: columns a cell, labelled bars, new keys folded in the middle."""

    cell: int
    has_labels: bool
    folds_new: bool
    has_notes: bool


def bar_label(count: int) -> str:
    """A folded bar's heading."""
    return f"▒×{count}"


def new_keys(number: int, start: int, count: int, way: Way) -> Iterable[Keys]:
    """A sequence's `count` new keys from column `start` on, in one stretch or folded in the middle."""
    stop = start + count
    if not way.folds_new or count <= UNFOLDED:
        yield Keys("new", number, start, stop, way.cell * count)
        return
    label = f"█×{count - 2 * ENDS}"
    yield Keys("new", number, start, start + ENDS, way.cell * ENDS)
    yield Keys("new", number, start + ENDS, stop - ENDS, len(label) + 1, True, label)
    yield Keys("new", number, stop - ENDS, stop, way.cell * ENDS)


def note_columns(room: int) -> int:
    """Columns kept free for notes where bars could take any number."""
    return max(NOTE_WIDTH, min(36, room * 2 // 5))
