"""How the mask's key axis and queries are laid out on screen: what is folded, how wide a cell is. Pure.

Owns the decisions; `mask.py` draws them, `mask_padded.py` has those of padded steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbtui.drawing.mask_padded import fold_padded
from cbtui.drawing.mask_shapes import (
    ENDS,
    NOTE_WIDTH,
    Band,
    Grid,
    Hidden,
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
from engine.stream.records import Segment, StepRecord

# -- every cell ------------------------------------------------------------------------------------


def cell_layout(record: StepRecord, badges: Badges, cell: int, per_line: int = 1) -> MaskLayout:
    """Every query and every key, `cell` columns a key, `per_line` queries a line.

    A rectangle's rows stand side by side. With one query each they stand one under the other, on one key
    axis: none is a whole row's keys away.
    """
    grids = tuple(
        Grid(row, _true_keys(record, row, cell, gap=int(record.layout == "ragged")))
        for row in range(record.shape[0])
    )
    rows = range(0, record.shape[1], per_line)
    gutter = gutter_width(record, badges)
    if record.layout == "padded" and record.shape[1] == 1:
        bands = tuple(Band((grid,), rows, has_heading=False) for grid in grids)
        return MaskLayout(bands, gutter, axis_words(record))
    return MaskLayout((Band(grids, rows),), gutter)


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


def folded_layout(
    record: StepRecord,
    badges: Badges,
    width: int,
    height: int,
    *,
    window: int | None = None,
    has_notes: bool = True,
) -> MaskLayout:
    """The layout that shows most in `width` × `height` cells without hiding a difference.

    Args:
        record: the step.
        badges: names, whose lengths count.
        width: columns.
        height: lines, the heading included.
        window: keys a query sees in the shown layers; None: all before it.
        has_notes: room is kept beside the rows for the text that each looks back at.
    """
    if record.layout == "padded":
        return fold_padded(record, badges, width, height, window, has_notes)
    return _fold_ragged(record, badges, width, height, window, has_notes)


#: From the most telling to the narrowest.
_WAYS = (
    *(
        Way(cell, has_labels, ends, has_notes)
        for ends in (None, ENDS)
        for has_labels in (True, False)
        for has_notes in (True, False)
        for cell in (2, 1)
        if not (has_notes and not has_labels)
    ),
    Way(1, False, 1, False),
    Way(1, False, 0, False),
)


def _fold_ragged(
    record: StepRecord, badges: Badges, width: int, height: int, window: int | None, has_notes: bool
) -> MaskLayout:
    gutter = gutter_width(record, badges)
    room = width - gutter
    looks_back = has_notes and any(segment.num_cached for segment in record.segments)
    if _columns(_ragged_keys(record, badges, _WAYS[-1], window)) > room:
        return _diagonal(record, gutter, width, height, window)
    for way in _WAYS:
        if way.has_notes and not looks_back:
            continue
        keys = _ragged_keys(record, badges, way, window)
        spare = room - _columns(keys) - (NOTE_WIDTH + 2 if way.has_notes else 0)
        if spare >= 0:
            if way.has_labels and all(segment.q_len == 1 for segment in record.segments):
                kept = max(0, note_columns(room) - NOTE_WIDTH) if has_notes else 0
                keys = _in_proportion(keys, spare - kept, way.cell)
            grid = Grid(0, keys, has_notes=looks_back, is_counted=not way.has_labels)
            rows = _fold_rows(record.segments, height - 1)
            return MaskLayout((Band((grid,), [row for own in rows for row in own]),), gutter)
    raise AssertionError("the narrowest way fits, as was found before")


def _columns(keys: Iterable[Keys]) -> int:
    return sum(k.columns + k.gap for k in keys)


def _ragged_keys(record: StepRecord, badges: Badges, way: Way, window: int | None) -> tuple[Keys, ...]:
    found: list[Keys] = []
    for number, segment in enumerate(record.segments):
        own = [
            *cached_keys(number, segment, window, way, badges[segment.request_id].letter),
            *new_keys(number, segment.kv_start + segment.num_cached, segment.q_len, way),
        ]
        found.append(_moved(own[0], gap=int(bool(found))))
        found.extend(own[1:])
    return tuple(found)


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


def _diagonal(record: StepRecord, gutter: int, width: int, height: int, window: int | None) -> MaskLayout:
    """A band a sequence: its own keys, cached ones as bars on one scale, and before and behind them all
    others' as a blocked stretch each. The first stands at the left, the last at the right: the diagonal."""
    room = width - gutter
    note = note_columns(room) + 2 if room > 2 * NOTE_WIDTH else 0
    room = max(4, room - note)
    fresh, way = _narrowest_new(record, room // 2)
    widest = max(_columns(keys) for keys in fresh)
    longest = max(1, max(segment.num_cached for segment in record.segments))
    # Half of what is left is for bars, half for the blocks to move along.
    scale = min(1.0, max(1, (room - widest) // 2) / longest)
    own = []
    for number, segment in enumerate(record.segments):
        bars = cached_keys(number, segment, window, way)
        own.append([*(_scaled(keys, scale) for keys in bars), *fresh[number]])
    rows = _fold_rows(record.segments, height - 1)
    way_right = room - max(_columns(keys) for keys in own)
    bands = []
    for number, segment in enumerate(record.segments):
        before = round(way_right * number / max(1, len(own) - 1))
        keys = _among_others(record, segment, own[number], room, before)
        grid = Grid(0, keys, bool(note), is_counted=True)
        bands.append(Band((grid,), rows[number], has_heading=False))
    axis = "own keys, on the diagonal; all others' folded"
    return MaskLayout(tuple(bands), gutter, axis)


def _narrowest_new(record: StepRecord, room: int) -> tuple[list[list[Keys]], Way]:
    """Every sequence's new keys, folded just so far that the widest fits `room`, and how."""
    for ends in (ENDS, 1, 0):
        way = Way(1, False, ends, False)
        fresh = [
            list(new_keys(n, s.kv_start + s.num_cached, s.q_len, way)) for n, s in enumerate(record.segments)
        ]
        if max(_columns(keys) for keys in fresh) <= room:
            break
    return fresh, way


def _scaled(keys: Keys, scale: float) -> Keys:
    if not keys.is_folded:
        return keys
    columns = max(keys.columns, round(scale * (keys.stop - keys.start)))
    return Keys(keys.kind, keys.segment, keys.start, keys.stop, columns, True)


def _among_others(
    record: StepRecord, segment: Segment, own: list[Keys], room: int, before: int
) -> tuple[Keys, ...]:
    """A sequence's own keys after `before` columns of others', if any are there; behind them up to `room`."""
    spare = room - _columns(own)
    stop = segment.kv_start + segment.kv_len
    is_first, is_last = segment.kv_start == 0, stop == record.num_keys
    before = spare if is_last else 0 if is_first else min(max(1, before), spare - 1)
    behind = spare - before
    found = own
    if before > 0 and not is_first:
        found = [Keys("others", None, 0, segment.kv_start, before, True), *found]
    if behind > 0 and not is_last:
        found = [*found, Keys("others", None, stop, record.num_keys, behind, True)]
    return tuple(found)


def _fold_rows(segments: Sequence[Segment], budget: int) -> list[list[Row]]:
    """Each segment's drawn queries: all if they fit `budget` lines, else the longest prefills folded."""
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
    return [list(_ends(s.q_start, s.q_start + s.q_len, ends[n])) for n, s in enumerate(segments)]


def _ends(start: int, stop: int, kept: int) -> Iterable[Row]:
    if not kept:
        yield from range(start, stop)
        return
    yield from range(start, start + kept)
    yield Hidden(start + kept, stop - kept)
    yield from range(stop - kept, stop)
