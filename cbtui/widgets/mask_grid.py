"""The mask panel: which query may attend to which key in the shown step.

Owns the scale, the cursor and what else stands in the panel (cards of the queries where there is room, an
overview beside cells that scroll); how each is drawn is `cbtui.drawing`'s business.
"""

from __future__ import annotations

from functools import partial

from textual import events

from cbtui.drawing.lookback_cards import LEAST_HEIGHT, cards
from cbtui.drawing.mask import Lookback, MaskDrawing, folded, seen_keys
from cbtui.drawing.mask_overview import OVERVIEW_LEGEND, OverviewMask
from cbtui.drawing.mask_spots import Anchor, Drawing, Spot, anchor_of, area_of, moved
from cbtui.drawing.mask_words import Words, explain, is_allowed, layers_title, layers_words, legend
from cbtui.drawing.mask_zoom import Zoom, drawing_at, ladder
from cbtui.drawing.window import merged, overlaid, text_between
from cbtui.following.frame import Frame
from cbtui.keys import MASK_KEYS, bindings
from cbtui.looks.pieces import Line, line_width
from cbtui.looks.tokens import prose
from cbtui.telling.provenance import mark
from cbtui.telling.request_tokens import bytes_at, tokens_between
from cbtui.widgets.window_view import WindowView
from engine.step.mask import LayerKind, layer_kinds
from engine.stream.ledger import Ledger
from engine.stream.records import Segment, StepRecord

#: Tokens whose text is made for the few keys shown beside a row.
_LOOKBACK_TOKENS = 24
#: The overview beside cells that scroll: its columns, and the width from which there is room for it.
_MINI, _ROOM_FOR_MINI = 26, 72


def lookback(ledger: Ledger, window: int | None = None) -> Lookback:
    """The end of the text up to a segment's last token, as far as that one sees it, from the ledger."""

    def text(segment: Segment) -> str:
        stop = segment.position + segment.num_kept
        start = max(0, stop - min(_LOOKBACK_TOKENS, seen_keys(segment, window)))
        tokens = tokens_between(ledger, segment.request_id, start, stop)
        shown = prose(ledger.decode(tokens).lstrip("\ufffd"))
        return f"…{shown}" if start else shown

    return text


class MaskGrid(WindowView, can_focus=True):
    """Queries × keys of the shown step, on the scale that `zoom` chooses; with focus it has a cursor."""

    PURPOSE = "Which token may look at which: █ new keys, ▒ cached, · blocked"
    KEYS = MASK_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._zoom = Zoom.FOLDED
        self._kind = 0
        self._cursor: Anchor | None = None
        self._drawing: Drawing | None = None
        self._mini: OverviewMask | None = None
        self._cards: list[Line] = []
        self._key: tuple[object, ...] = ()

    # -- scale -----------------------------------------------------------------------------------

    @property
    def shows_true_cells(self) -> bool:
        """Whether every cell is drawn."""
        return self._zoom.is_true

    @property
    def zoom_words(self) -> str:
        """What the scale shows."""
        return self._zoom.value

    def zoom(self, by: int = 1) -> None:
        """The next (or earlier) of the scales worth seeing at this step and size; the last leads back."""
        record = self._frame.record if self._frame else None
        if record is None or self._frame is None:
            return
        width, height = self._room()
        steps = ladder(record, self._frame.badges, width, height)
        at = steps.index(self._zoom) if self._zoom in steps else 0
        self._zoom = steps[(at + by) % len(steps)]
        self.scroll_to(0, 0, animate=False)
        self.redraw()
        self._reveal()

    # -- kinds of layers -------------------------------------------------------------------------

    @property
    def _kinds(self) -> tuple[LayerKind, ...]:
        model = self._frame.state.model if self._frame else None
        return layer_kinds(model.facts.layer_windows if model else ())

    @property
    def _shown_kind(self) -> int:
        return self._kind % len(self._kinds)

    @property
    def _attention_window(self) -> int | None:
        """Keys a query sees in the shown layers; None: all before it."""
        return self._kinds[self._shown_kind].window

    def next_layers(self) -> str:
        """Show the mask in the model's next kind of layers; says in a sentence which these are."""
        self._kind = (self._shown_kind + 1) % len(self._kinds)
        self.redraw()
        self._reveal()
        return layers_words(self._kinds, self._shown_kind)

    # -- cursor ----------------------------------------------------------------------------------

    def action_cursor(self, dx: int, dy: int) -> None:
        """Move the cursor to the next cell."""
        record = self._shown_record()
        if record is None or self._drawing is None:
            return
        spot = self._spot(record, self._drawing)
        if spot is None:
            return
        spot = moved(self._drawing, spot, dx, dy)
        self._point(record, spot)

    def action_pan(self, dx: int, dy: int) -> None:
        """Move the cursor by half a window."""
        width, height = self._room()
        for _ in range(max(1, (width // 2 if dx else height // 2))):
            self.action_cursor(dx, dy)

    def on_click(self, event: events.Click) -> None:
        """Point at the cell under the mouse."""
        record, offset = self._shown_record(), event.get_content_offset(self)
        if record is None or offset is None or self._drawing is None or offset.y == 0:
            return
        x, y = self.scroll_offset
        column = offset.x if offset.x < self._drawing.fixed else offset.x + x
        spot = Spot((offset.y - 1 + y) * self._drawing.per_line, column, 1)
        if self._drawing.area(spot.y, spot.x) is not None:
            self._point(record, spot)

    def _point(self, record: StepRecord, spot: Spot) -> None:
        assert self._drawing is not None
        area = self._drawing.area(spot.y, spot.x)
        if area is not None:
            self._cursor = anchor_of(record, area)
            self._reveal()
            self.redraw()

    def _spot(self, record: StepRecord, drawing: Drawing) -> Spot | None:
        return drawing.spot(area_of(record, self._cursor)) if record.segments else None

    def _reveal(self) -> None:
        """Scroll so that the cursor is in the window."""
        record, drawing = self._shown_record(), self._drawing
        spot = self._spot(record, drawing) if record is not None and drawing is not None else None
        if spot is None or drawing is None or not self.has_focus or not self.scrolls:
            return
        width, height = self._room()
        x, y = self.scroll_offset
        line = spot.y // drawing.per_line
        x = min(max(x, spot.x + spot.columns - width), spot.x - drawing.fixed)
        y = min(max(y, line - height + 2), line)
        self.scroll_to(max(0, x), max(0, y), animate=False)

    def _shown_record(self) -> StepRecord | None:
        record = self._frame.record if self._frame else None
        return record if record is not None and record.segments else None

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there only with focus."""
        super().watch_has_focus(has_focus)
        self.redraw()
        self._reveal()

    # -- drawing ---------------------------------------------------------------------------------

    def _room(self) -> tuple[int, int]:
        """Columns and lines for heading and cells: without the overview beside, and the words below."""
        region = self.scrollable_content_region
        width = region.width - (_MINI + 3 if self._mini is not None else 0)
        return max(1, width), max(1, region.height - int(self.has_focus))

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Heading, the visible part of the body, and below, if a line is left, the legend or the cursor's
        cell in words."""
        record = self._shown_record()
        if record is None or self._frame is None:
            self.title("Mask")
            self.extent(0, 0)
            return self.purpose()
        lines_left = max(1, height - int(self.has_focus))
        drawing = self._drawn(record, width, lines_left)
        beside = _MINI + 3 if self._mini is not None else 0
        self.extent(drawing.columns + beside, drawing.count + 1 + int(self.has_focus))
        layers = layers_title(self._kinds, self._shown_kind)
        doubt = mark(self._frame.state.provenance, "mask")
        parts = [drawing.title, doubt, layers, "w the others" if len(self._kinds) > 1 else ""]
        self.title(" · ".join(filter(None, [*parts, "arrows move" if self.scrolls else ""])))
        lines = self._body(record, drawing, width - beside, lines_left)
        if self._mini is not None:
            lines = self._with_mini(lines, drawing, width, lines_left)
        if self._cards:
            lines += [(), *self._cards]
        if len(lines) < height:
            lines.extend([()] * (height - len(lines) - 1))
            if self.has_focus:
                lines.append(self._words(record, drawing))
            else:
                lines.append(OVERVIEW_LEGEND if self._zoom is Zoom.OVERVIEW else legend(record, width))
        return lines

    def _body(self, record: StepRecord, drawing: Drawing, width: int, height: int) -> list[Line]:
        x, y = self.scroll_offset
        lines = [drawing.heading(x, width)]
        shown = min(height - 1, drawing.count - y)
        lines.extend(drawing.line(y + number, x, width) for number in range(shown))
        spot = self._spot(record, drawing) if self.has_focus else None
        if spot is None:
            return lines
        line = spot.y // drawing.per_line - y + 1
        column = spot.x - x
        if 0 < line < len(lines) and drawing.fixed <= column <= width - spot.columns:
            lines[line] = self._marked(record, drawing, spot, lines[line], column)
        return lines

    def _marked(self, record: StepRecord, drawing: Drawing, spot: Spot, line: Line, column: int) -> Line:
        """The cursor over its cell: ✓ it may look, ✗ it may not; half a cell where cells are halves."""
        area = drawing.area(spot.y, spot.x)
        if area is None:
            return line
        if drawing.per_line > 1:
            return overlaid(line, column, "▄" if spot.y % 2 else "▀", "accent")
        sign = "✓" if is_allowed(record, area, self._attention_window) else "✗"
        return overlaid(line, column, sign.center(spot.columns), "target")

    def _words(self, record: StepRecord, drawing: Drawing) -> Line:
        assert self._frame is not None
        spot = self._spot(record, drawing)
        area = drawing.area(spot.y, spot.x) if spot is not None else None
        if area is None:
            return ()
        words = Words(
            self._frame.badges,
            self._frame.state.config.block_size,
            partial(bytes_at, self._frame.ledger),
            self._attention_window,
        )
        return explain(record, area, words)

    def _with_mini(self, lines: list[Line], drawing: Drawing, width: int, height: int) -> list[Line]:
        """The whole mask at the right, its visible part reversed."""
        mini = self._mini
        assert mini is not None
        x, y = self.scroll_offset
        record = self._shown_record()
        assert record is not None
        first = drawing.area(y * drawing.per_line, x + drawing.fixed) or drawing.area(
            y * drawing.per_line, x + drawing.fixed + 1
        )
        bottom = min(y + height - 2, drawing.count - 1) * drawing.per_line
        right = min(x + width - _MINI - 4, drawing.columns - 1)
        last = drawing.area(bottom, right) or drawing.area(bottom, right - 1)
        corners = [mini.spot(area) for area in (first, last) if area is not None]
        beside = [(("the whole mask", "dim"),), mini.heading(0, _MINI)]
        for number in range(mini.count):
            line = mini.line(number, 0, _MINI)
            if len(corners) == 2 and corners[0] and corners[1] and corners[0].y <= number <= corners[1].y:
                line = _reversed(line, corners[0].x, corners[1].x + 1)
            beside.append(line)
        left = width - _MINI
        joined = []
        for number in range(min(height, max(len(lines), len(beside)))):
            line = lines[number] if number < len(lines) else ()
            more = beside[number] if number < len(beside) else ()
            joined.append(merged([*line, (" " * (left - line_width(line)), ""), *more]))
        return joined

    def _drawn(self, record: StepRecord, width: int, height: int) -> Drawing:
        """The drawing of a step at this size, kept while neither changes."""
        key = (record, width, height, self._zoom, self._attention_window)
        if self._drawing is None or not _same(key, self._key):
            assert self._frame is not None
            self._cards, self._mini = [], None
            if self._zoom is Zoom.FOLDED:
                self._drawing = self._folded(self._frame, record, width, height)
            else:
                self._drawing = self._scaled(self._frame, record, width, height)
            self._key = key
        return self._drawing

    def _folded(self, frame: Frame, record: StepRecord, width: int, height: int) -> MaskDrawing:
        """Folded, with a card a query below where the rows leave room for it."""
        bare = folded(record, frame.badges, None, width, height, self._attention_window)
        # A blank line above the cards, and one below for the legend; with focus that one is apart.
        spare = height - 1 - bare.count - (1 if self.has_focus else 2)
        if spare >= LEAST_HEIGHT:

            def seen(segment: Segment, count: int) -> tuple[int, ...]:
                stop = segment.position + segment.num_kept
                return tokens_between(frame.ledger, segment.request_id, stop - count, stop)

            text = frame.ledger.token_bytes.get
            self._cards = cards(record, frame.badges, seen, text, width, spare, self._attention_window)
        if self._cards:
            return bare
        look = lookback(frame.ledger, self._attention_window)
        return folded(record, frame.badges, look, width, height, self._attention_window)

    def _scaled(self, frame: Frame, record: StepRecord, width: int, height: int) -> Drawing:
        """On a scale of its own, with an overview beside it if it scrolls and there is room."""
        look = lookback(frame.ledger, self._attention_window)
        drawing = drawing_at(self._zoom, record, frame.badges, look, width, height, self._attention_window)
        fits = drawing.columns <= width and drawing.count < height
        if self._zoom.is_true and not fits and width >= _ROOM_FOR_MINI and height > 6:
            self._mini = OverviewMask(record, frame.badges, _MINI, height - 1, 0, self._attention_window)
        return drawing


def _reversed(line: Line, start: int, stop: int) -> Line:
    """A line with the columns [start, stop) reversed, which is seen without colour, too."""
    return overlaid(line, start, text_between(line, start, stop), "reverse")


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Records by identity: comparing two of them by value costs more than drawing one."""
    return len(one) == len(other) and one[0] is other[0] and one[1:] == other[1:]
