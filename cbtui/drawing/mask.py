"""Draws who may attend to whom in a step. Pure: a record in, any line of the drawing out.

The mask is never built: each drawn query's allowed keys are one run (`engine.step.mask`), and every
stretch of keys is blank, full, or cut by that run. Lines are made one at a time for the visible window,
so a step of thousands of tokens costs what is on screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cbtui.drawing.mask_layout import folded_layout
from cbtui.drawing.mask_shapes import GRID_GAP, Band, Grid, Hidden, Keys, MaskLayout, Row, query_label
from cbtui.drawing.mask_spots import Area, Spot, column_of, key_at, row_of
from cbtui.drawing.mask_spots import cell_columns as _cell
from cbtui.drawing.window import LineWriter, merged
from cbtui.looks.pieces import Line, clip_line, line_width
from cbtui.looks.tokens import clip_left
from cbtui.telling.naming import Badge, Badges
from cbtui.telling.words import count
from engine.step.mask import query_run
from engine.stream.records import Segment, StepRecord

NEW, CACHED, BLOCKED, PADDING, DEAD, PADDING_KEY = "█", "▒", "·", "╳", "░", "◆"

#: The end of the text that a segment's last query looks back at.
Lookback = Callable[[Segment], str]


@dataclass(frozen=True, slots=True)
class _Line:
    """What one body line shows: a band's heading, or one row of it."""

    band: Band
    row: Row | None


class MaskDrawing:
    """One step's mask in layers of one kind, folded into `width` × `height` cells or cell by cell.

    `count` body lines of `columns` columns stand under the heading. The heading and, with one grid, the
    queries' labels stay in place while the body scrolls.
    """

    per_line = 1

    def __init__(
        self,
        record: StepRecord,
        badges: Badges,
        layout: MaskLayout,
        lookback: Lookback,
        window: int | None = None,
    ) -> None:
        self._record = record
        self._badges = badges
        self._window = window
        self._layout = layout
        self._lookback = lookback
        self._by_row: dict[int, list[int]] = {}
        for number, segment in enumerate(record.segments):
            self._by_row.setdefault(segment.row, []).append(number)
        self._starts: list[tuple[int, int]] = []  # (first body line, band number)
        self.count = 0
        for number, band in enumerate(layout.bands):
            self._starts.append((self.count, number))
            self.count += len(band.rows) + int(band.has_heading and number > 0)
        self.columns = layout.columns

    @property
    def title(self) -> str:
        """The panel's title."""
        rows, queries = self._record.shape
        keys = self._record.num_keys
        size = f"{count(queries, 'query', 'queries')} × {count(keys, 'key')}"
        if self._record.layout == "padded":
            size = f"{count(rows, 'row')} of {size}"
        return f"Mask {size}{', folded' if self._layout.is_folded else ''}"

    @property
    def fixed(self) -> int:
        """Columns that stay while the body scrolls: the labels, with one grid."""
        bands = self._layout.bands
        return 0 if bands and len(bands[0].grids) > 1 else self._layout.gutter

    def area(self, y: int, x: int) -> Area | None:
        """The queries and keys drawn at a place; None: a label, a gap, what is left out."""
        at = self._at(y // self.per_line)
        if at is None or at.row is None or isinstance(at.row, Hidden):
            return None
        found = key_at(at.band, self._layout.gutter, x)
        query = at.row + y % self.per_line
        if found is None or query >= self._record.shape[1]:
            return None
        row, start, stop = found
        return Area(row, query, query + 1, start, stop)

    def spot(self, area: Area) -> Spot | None:
        """Where the first cell of an area is drawn."""
        for start, number in self._starts:
            band = self._layout.bands[number]
            row = row_of(band.rows, area.query)
            place = column_of(band, self._layout.gutter, area.row, area.key)
            if row is not None and place is not None:
                line = start + int(band.has_heading and number > 0) + row
                return Spot(line * self.per_line + area.query % self.per_line, *place)
        return None

    def heading(self, first: int, width: int) -> Line:
        """The line above everything: key owners from column `first` on."""
        if not self._layout.bands:
            return ()
        band = self._layout.bands[0]
        if band.has_heading:
            return self._heading(band, first, width)
        return clip_line(((" " * self._layout.gutter, ""), (self._layout.axis, "dim")), width)

    def line(self, y: int, first: int, width: int) -> Line:
        """Body line `y`, in a window of `width` columns from column `first` on."""
        at = self._at(y)
        if at is None:
            return ()
        if at.row is None:
            return self._heading(at.band, first, width)
        return self._row(at.band, at.row, first, width)

    def _at(self, y: int) -> _Line | None:
        if not 0 <= y < self.count:
            return None
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle][0] <= y else (low, middle)
        start, number = self._starts[low]
        band = self._layout.bands[number]
        row = y - start - int(band.has_heading and number > 0)
        return _Line(band, None if row < 0 else band.rows[row])

    # -- one line --------------------------------------------------------------------------------

    def _writer(self, band: Band, first: int, width: int) -> tuple[LineWriter, LineWriter]:
        """Where labels and where keys are written: apart with one grid, else the same."""
        if len(band.grids) > 1:
            writer = LineWriter(first, first + width)
            return writer, writer
        gutter = self._layout.gutter
        return LineWriter(0, width), LineWriter(first, first + max(0, width - gutter))

    def _joined(self, label: LineWriter, keys: LineWriter) -> Line:
        return label.line() if label is keys else merged([*label.line(), *keys.line()])

    def _heading(self, band: Band, first: int, width: int) -> Line:
        label, writer = self._writer(band, first, width)
        for number, grid in enumerate(band.grids):
            if number:
                writer.fill(" ", GRID_GAP, "")
            label.fill(" ", self._layout.gutter, "")
            for keys in grid.keys:
                writer.fill(" ", keys.gap, "")
                self._owner(writer, keys)
        return self._joined(label, writer)

    def _owner(self, writer: LineWriter, keys: Keys) -> None:
        """The heading over a stretch of keys: whose they are."""
        badge = self._badge(keys.segment)
        style = f"badge:{badge.colour}" if badge else "padding"
        cell = _cell(keys)
        if keys.is_folded:
            label = keys.label
            if not label or len(label) > keys.columns:
                label = badge.letter if badge and len(badge.letter) <= keys.columns else ""
            writer.text(label, style, keys.columns)
        elif badge is None:
            writer.fill(PADDING if cell == 1 else PADDING + " ", keys.columns, style)
        else:
            name = badge.cell if cell == 1 else badge.letter[:2].ljust(2)
            writer.fill(name, keys.columns, style)

    def _row(self, band: Band, row: Row, first: int, width: int) -> Line:
        label, writer = self._writer(band, first, width)
        if isinstance(row, Hidden):
            return self._hidden(band, row, first, width)
        segment = None
        for number, grid in enumerate(band.grids):
            if number:
                writer.fill(" ", GRID_GAP, "")
            segment = self._segment_at(grid.row, row)
            self._label(label, segment, row)
            self._cells(writer, grid, segment, row)
        line = self._joined(label, writer)
        if segment is not None and band.grids[-1].has_notes:
            line = self._with_note(
                line, self._record.segments[segment], row, width, band.grids[-1].is_counted
            )
        return line

    def _hidden(self, band: Band, row: Hidden, first: int, width: int) -> Line:
        count = row.stop - row.start
        writer, keys = self._writer(band, first, width)
        for number, grid in enumerate(band.grids):
            if number:
                writer.fill(" ", GRID_GAP, "")
            segment = self._segment_at(grid.row, row.start)
            letter = "" if segment is None else self._badges[self._record.segments[segment].request_id].letter
            size = self._layout.gutter + (grid.columns if writer is keys else 0)
            writer.text(f"{' ' * len(letter)} ⋮", "dim", min(size, len(letter) + 3))
            text = f"{count} rows" if number == 0 else ""
            if writer is keys:
                writer.text(text, "dim", size - min(size, len(letter) + 3))
            else:
                writer.text(text, "dim")
        return writer.line()

    def _label(self, writer: LineWriter, segment: int | None, query: int) -> None:
        end = writer.column + self._layout.gutter
        if segment is None:
            writer.text(PADDING, "padding")
        else:
            found = self._record.segments[segment]
            badge = self._badges[found.request_id]
            writer.text(badge.letter, f"badge:{badge.colour}")
            position = found.position + query - found.q_start
            label = query_label(badge.letter, position)[len(badge.letter) :]
            writer.text(label, "dim" if _is_waste(found, query) else "")
        writer.fill(" ", end - writer.column, "")

    def _cells(self, writer: LineWriter, grid: Grid, segment: int | None, query: int) -> None:
        start, stop = (0, 1)
        if segment is not None:
            found = self._record.segments[segment]
            start, stop = query_run(found, query - found.q_start, self._window)
        for keys in grid.keys:
            writer.fill(" ", keys.gap, "")
            before, allowed = _columns(keys, start, stop)
            blank, blank_style = _blank(keys, segment)
            writer.fill(blank, before, blank_style)
            if allowed:
                glyph, style = self._allowed(keys, segment, query)
                writer.fill(glyph, allowed, style)
            rest = keys.columns - before - allowed
            # The rest starts on a cell's edge when drawn cell by cell, so its pattern is in phase.
            writer.fill(blank if rest % 2 == keys.columns % 2 else blank[::-1], rest, blank_style)

    def _allowed(self, keys: Keys, segment: int | None, query: int) -> tuple[str, str]:
        badge = self._badge(segment)
        if badge is None or segment is None:
            return (PADDING_KEY if _cell(keys) == 1 else PADDING_KEY + " "), "padding"
        style = f"block:{badge.colour}"
        if _is_waste(self._record.segments[segment], query):
            return DEAD, style
        return (CACHED if keys.kind == "cached" else NEW), style

    def _with_note(self, line: Line, segment: Segment, query: int, width: int, is_counted: bool) -> Line:
        """What the last query of a segment looks back at, right of the grid."""
        if query != segment.q_start + segment.num_kept - 1:
            return line
        # Notes of a stack of bands stand in one column.
        line = (*line, (" " * (self.columns - line_width(line)), ""))
        room = width - self.columns - 2
        if segment.kind == "dead":
            text = "dead: ended, still fed"
            return line if room < 4 else clip_line(merged([*line, ("  ", ""), (text, "dim")]), width)
        if not segment.num_cached or room < 8:
            return line
        count = f"{seen_keys(segment, self._window)} keys "
        if not is_counted or room < len(count) + 10:
            count = ""
        text = clip_left(self._lookback(segment), room - len(count))
        return merged([*line, ("  ", ""), (count, "faint"), (text, "dim")])

    # -- look-ups --------------------------------------------------------------------------------

    def _segment_at(self, row: int, query: int) -> int | None:
        """Number of the segment that owns a query; None: padding."""
        numbers = self._by_row.get(row, [])
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high) // 2
            segment = self._record.segments[numbers[middle]]
            if query < segment.q_start:
                high = middle
            elif query >= segment.q_start + segment.q_len:
                low = middle + 1
            else:
                return numbers[middle]
        return None

    def _badge(self, segment: int | None) -> Badge | None:
        return None if segment is None else self._badges[self._record.segments[segment].request_id]


def folded(
    record: StepRecord,
    badges: Badges,
    lookback: Lookback | None,
    width: int,
    height: int,
    window: int | None = None,
) -> MaskDrawing:
    """The mask folded to show most in `width` × `height` cells, the heading line included.

    Without `lookback` no text stands beside the rows, and the bars take its room. `window`: keys a query sees
    in the shown layers; None: all before it.
    """
    layout = folded_layout(record, badges, width, height, window=window, has_notes=lookback is not None)
    return MaskDrawing(record, badges, layout, lookback or _no_text, window)


def seen_keys(segment: Segment, window: int | None) -> int:
    """Keys that a segment's last query sees; the last one that is no rejected draft."""
    start, stop = query_run(segment, segment.num_kept - 1, window)
    return stop - start


def _is_waste(segment: Segment, query: int) -> bool:
    """Whether what a query works out is thrown away."""
    return segment.kind == "dead" or segment.fate(query - segment.q_start) in ("unused", "rejected")


def _no_text(segment: Segment) -> str:
    return ""


def _columns(keys: Keys, start: int, stop: int) -> tuple[int, int]:
    """Terminal columns blocked before, and allowed in, a stretch of keys by the run [start, stop).

    In a bar that is partly allowed the share is rounded so that no part disappears, if there is room.
    """
    low, high = max(start, keys.start), min(stop, keys.stop)
    if low >= high:
        return keys.columns, 0
    if not keys.is_folded:
        cell = _cell(keys)
        return (low - keys.start) * cell, (high - low) * cell
    count = keys.stop - keys.start
    if high - low == count:
        return 0, keys.columns
    most = keys.columns - int(low > keys.start) - int(high < keys.stop)
    allowed = max(1, min(most, round((high - low) / count * keys.columns)))
    if low == keys.start:
        return 0, allowed
    if high == keys.stop:
        return keys.columns - allowed, allowed
    before = round((low - keys.start) / count * keys.columns)
    return max(0, min(max(1, before), keys.columns - allowed - 1)), allowed


def _blank(keys: Keys, segment: int | None) -> tuple[str, str]:
    """How a blocked stretch looks: padding where either axis is padding, else a dot a cell."""
    is_padding = segment is None or keys.kind == "padding"
    glyph, style = (PADDING, "padding") if is_padding else (BLOCKED, "faint")
    if not keys.is_folded:
        return (glyph if _cell(keys) == 1 else glyph + " "), style
    if is_padding:
        return glyph, style
    # In phase with what follows: the last column of a bar is blank.
    return (" " + glyph if keys.columns % 2 and keys.columns > 1 else glyph + " "), style
