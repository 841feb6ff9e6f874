"""How the mask's key axis and queries are laid out on screen: what is folded, how wide a cell is. Pure.

Owns the decisions; `mask.py` draws them. A drawing is a stack of bands, a band is grids side by side:

- ragged: one band with one grid, all sequences' keys side by side (blocks on the diagonal);
- ragged with too many sequences for that: one band a sequence, each against its own keys only;
- padded: one grid a row of the rectangle, side by side, as `[B, 1, L, K]` is; with one query a row they
  are stacked instead, on one key axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cbtui.naming import Badges
from engine.records import Segment, StepRecord

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


# -- every cell ------------------------------------------------------------------------------------


def true_layout(record: StepRecord, badges: Badges, width: int) -> MaskLayout:
    """Every query and every key, two columns a cell if that fits `width`, else one."""
    gutter = gutter_width(record, badges)
    layout = MaskLayout((), gutter)
    for cell in (2, 1):
        grids = tuple(
            Grid(row, _true_keys(record, row, cell, gap=int(record.layout == "ragged")))
            for row in range(record.shape[0])
        )
        layout = MaskLayout((Band(grids, range(record.shape[1])),), gutter)
        if layout.columns <= width:
            break
    return layout


def _true_keys(record: StepRecord, row: int, cell: int, gap: int) -> tuple[Keys, ...]:
    found: list[Keys] = []
    column = 0
    for number, segment in enumerate(record.segments):
        if segment.row != row:
            continue
        if segment.kv_start > column:
            found.append(Keys("padding", None, column, segment.kv_start, cell * (segment.kv_start - column)))
        space = gap if found else 0
        new = segment.kv_start + segment.num_cached
        if segment.num_cached:
            found.append(Keys("cached", number, segment.kv_start, new, cell * segment.num_cached, gap=space))
            space = 0
        column = segment.kv_start + segment.kv_len
        found.append(Keys("new", number, new, column, cell * segment.q_len, gap=space))
    if column < record.num_keys and record.layout == "padded":
        found.append(Keys("padding", None, column, record.num_keys, cell * (record.num_keys - column)))
    return tuple(found)


# -- folded, ragged --------------------------------------------------------------------------------


def folded_layout(record: StepRecord, badges: Badges, width: int, height: int) -> MaskLayout:
    """The layout that shows most in `width` × `height` cells without hiding a difference."""
    if record.layout == "padded":
        return _fold_padded(record, badges, width, height)
    return _fold_ragged(record, badges, width, height)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to draw a sequence's keys: columns a cell, labelled bars, new keys folded in the middle."""

    cell: int
    has_labels: bool
    folds_new: bool
    has_notes: bool


#: From the most telling to the narrowest.
_WAYS = tuple(
    _Way(cell, has_labels, folds_new, has_notes)
    for folds_new in (False, True)
    for has_labels in (True, False)
    for has_notes in (True, False)
    for cell in (2, 1)
    if not (has_notes and not has_labels)
)


def bar_label(count: int) -> str:
    """A folded bar's heading."""
    return f"▒×{count}"


def _fold_ragged(record: StepRecord, badges: Badges, width: int, height: int) -> MaskLayout:
    gutter = gutter_width(record, badges)
    room = width - gutter
    looks_back = any(segment.num_cached for segment in record.segments)
    for way in _WAYS:
        if way.has_notes and not looks_back:
            continue
        keys = _ragged_keys(record, badges, way)
        spare = room - sum(k.columns + k.gap for k in keys) - (NOTE_WIDTH + 2 if way.has_notes else 0)
        if spare >= 0:
            if way.has_labels and all(segment.q_len == 1 for segment in record.segments):
                keys = _in_proportion(keys, spare - max(0, _note_columns(room) - NOTE_WIDTH), way.cell)
            grid = Grid(0, keys, has_notes=looks_back, is_counted=not way.has_labels)
            rows = _fold_rows(record.segments, height - 1)
            return MaskLayout((Band((grid,), rows),), gutter)
    return _own_keys(record, gutter, width, height)


def _note_columns(room: int) -> int:
    """Columns kept free for notes where bars could take any number."""
    return max(NOTE_WIDTH, min(36, room * 2 // 5))


def _ragged_keys(record: StepRecord, badges: Badges, way: _Way) -> tuple[Keys, ...]:
    found: list[Keys] = []
    for number, segment in enumerate(record.segments):
        letter = badges[segment.request_id].letter
        own = _sequence_keys(number, segment, letter, way)
        found.append(_moved(own[0], gap=int(bool(found))))
        found.extend(own[1:])
    return tuple(found)


def _sequence_keys(number: int, segment: Segment, letter: str, way: _Way) -> list[Keys]:
    found: list[Keys] = []
    new = segment.kv_start + segment.num_cached
    if segment.num_cached:
        label = letter + bar_label(segment.num_cached)
        columns = len(label) + 1 if way.has_labels else 1
        found.append(Keys("cached", number, segment.kv_start, new, columns, True, label))
    found.extend(_new_keys(number, new, segment.q_len, way))
    return found


def _new_keys(number: int, start: int, count: int, way: _Way) -> Iterable[Keys]:
    stop = start + count
    if not way.folds_new or count <= UNFOLDED:
        yield Keys("new", number, start, stop, way.cell * count)
        return
    label = f"█×{count - 2 * ENDS}"
    yield Keys("new", number, start, start + ENDS, way.cell * ENDS)
    yield Keys("new", number, start + ENDS, stop - ENDS, len(label) + 1, True, label)
    yield Keys("new", number, stop - ENDS, stop, way.cell * ENDS)


def _moved(keys: Keys, gap: int) -> Keys:
    return Keys(keys.kind, keys.segment, keys.start, keys.stop, keys.columns, keys.is_folded, keys.label, gap)


def _in_proportion(keys: tuple[Keys, ...], spare: int, cell: int) -> tuple[Keys, ...]:
    """Bars widened into `spare` columns, in proportion to the keys they stand for.

    The scale is the largest whose bars fit; never more than a cell's columns a key.
    """
    bars = [k for k in keys if k.is_folded]
    if not bars or spare <= 0:
        return keys
    budget = spare + sum(k.columns for k in bars)

    def columns(bar: Keys, scale: float) -> int:
        return max(bar.columns, round(scale * (bar.stop - bar.start)))

    low, high = 0.0, float(cell)
    for _ in range(24):
        middle = (low + high) / 2
        if sum(columns(bar, middle) for bar in bars) <= budget:
            low = middle
        else:
            high = middle
    return tuple(
        Keys(k.kind, k.segment, k.start, k.stop, columns(k, low), True, k.label, k.gap) if k.is_folded else k
        for k in keys
    )


def _own_keys(record: StepRecord, gutter: int, width: int, height: int) -> MaskLayout:
    """A band a sequence, each against its own keys, cached bars on one scale."""
    note = _note_columns(width - gutter) + 2 if width - gutter > 2 * NOTE_WIDTH else 0
    way = _Way(1, has_labels=False, folds_new=True, has_notes=bool(note))
    fresh = [
        list(_new_keys(n, s.kv_start + s.num_cached, s.q_len, way)) for n, s in enumerate(record.segments)
    ]
    widest = max(sum(k.columns for k in keys) for keys in fresh)
    longest = max(1, max(segment.num_cached for segment in record.segments))
    scale = min(1.0, max(1, width - gutter - note - widest) / longest)
    rows = list(_fold_rows(record.segments, height - 1))
    bands = []
    for number, segment in enumerate(record.segments):
        keys = fresh[number]
        if segment.num_cached:
            start = segment.kv_start
            columns = max(1, round(scale * segment.num_cached))
            keys = [Keys("cached", number, start, start + segment.num_cached, columns, True), *keys]
        first, last = segment.q_start, segment.q_start + segment.q_len
        own = [r for r in rows if first <= (r.start if isinstance(r, Hidden) else r) < last]
        grid = Grid(0, tuple(keys), bool(note), is_counted=True)
        bands.append(Band((grid,), own, has_heading=False))
    return MaskLayout(tuple(bands), gutter, "own keys only, all others are blocked")


def _fold_rows(segments: Sequence[Segment], budget: int) -> list[Row]:
    """The queries drawn: all if they fit `budget` lines, else prefills folded, the longest first."""
    ends = dict.fromkeys(range(len(segments)), 0)
    longest_first = sorted(ends, key=lambda number: -segments[number].q_len)
    count = sum(segment.q_len for segment in segments)
    for kept in (ENDS, 3, 2, 1):
        for number in longest_first:
            if count <= budget:
                break
            length = segments[number].q_len
            if length > 2 * kept + 1:
                count += 2 * kept + 1 - (2 * ends[number] + 1 if ends[number] else length)
                ends[number] = kept
    rows: list[Row] = []
    for number, segment in enumerate(segments):
        rows.extend(_ends(segment.q_start, segment.q_start + segment.q_len, ends[number]))
    return rows


def _ends(start: int, stop: int, kept: int) -> Iterable[Row]:
    if not kept:
        yield from range(start, stop)
        return
    yield from range(start, start + kept)
    yield Hidden(start + kept, stop - kept)
    yield from range(stop - kept, stop)


# -- folded, padded --------------------------------------------------------------------------------


def _fold_padded(record: StepRecord, badges: Badges, width: int, height: int) -> MaskLayout:
    gutter = gutter_width(record, badges)
    if record.shape[1] == 1:
        return _stacked(record, gutter, width)
    grids: list[Grid] = []
    for folds, folds_new, cell in (
        (False, False, 2),
        (True, False, 2),
        (False, False, 1),
        (True, False, 1),
        (True, True, 2),
        (True, True, 1),
    ):
        way = _Way(cell, True, folds_new, False)
        grids = [
            Grid(s.row, tuple(_rectangle_keys(record, n, way, folds))) for n, s in enumerate(record.segments)
        ]
        if sum(gutter + g.columns for g in grids) + GRID_GAP * (len(grids) - 1) <= width:
            break
    grouped = _in_lines(grids, gutter, width)
    budget = height // max(1, len(grouped)) - 1
    bands = [Band(tuple(group), _fold_rectangle(record, group, budget)) for group in grouped]
    return MaskLayout(tuple(bands), gutter)


def _rectangle_keys(record: StepRecord, number: int, way: _Way, folds: bool) -> Iterable[Keys]:
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
    if segment.num_cached:
        label = bar_label(segment.num_cached)
        if folds and segment.num_cached > 2:
            yield Keys("cached", number, segment.kv_start, new, len(label) + 1, True, label)
        else:
            yield Keys("cached", number, segment.kv_start, new, way.cell * segment.num_cached)
    yield from _new_keys(number, new, segment.q_len, way)


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
    kept: set[int] = set()
    for ends in (ENDS, 3, 2, 1):
        kept = {*range(min(ends, length)), *range(max(0, length - ends), length)}
        kept |= edges | {edge - 1 for edge in edges}
        if 2 * len(kept) <= budget + ends * 2:
            break
    rows: list[Row] = []
    at = 0
    for row in sorted(kept):
        if row - at == 1:
            rows.append(at)
        elif row > at:
            rows.append(Hidden(at, row))
        rows.append(row)
        at = row + 1
    return rows


def _stacked(record: StepRecord, gutter: int, width: int) -> MaskLayout:
    """One query a row: the grids one under the other, all on one key axis, so that padding lines up."""
    keys = record.num_keys
    note = _note_columns(width - gutter) + 2 if width - gutter > 2 * NOTE_WIDTH else 0
    room = max(4, width - gutter - note)
    cell = 2 if 2 * keys <= room else 1
    scale = min(float(cell), (room - cell) / max(1, keys - 1))
    end = round(scale * (keys - 1))
    bands = []
    for number, segment in enumerate(record.segments):
        start, new = segment.kv_start, segment.kv_start + segment.num_cached
        # Each stretch keeps a column of its own, however short it is against the axis.
        first = min(max(round(scale * start), int(start > 0)), end - int(segment.num_cached > 0))
        found = []
        folded = scale < cell
        if start:
            found.append(Keys("padding", None, 0, start, max(1, first), folded))
        if segment.num_cached:
            found.append(Keys("cached", number, start, new, max(1, end - first), folded))
        found.append(Keys("new", number, new, new + segment.q_len, cell))
        grid = Grid(segment.row, tuple(found), bool(note), is_counted=True)
        bands.append(Band((grid,), [0], has_heading=False))
    return MaskLayout(tuple(bands), gutter, f"{keys} keys a row, as long as the longest")
