"""The packed row panel: every token that goes through the model in the shown step."""

from __future__ import annotations

from textual import events

from cbtui.drawing.packed_row import RowDrawing, packed_row, summary, title
from cbtui.drawing.row_cursor import Place, TokenAnchor, anchor_of, moved, place_of, token_words
from cbtui.drawing.window import overlaid, text_between
from cbtui.keys import ROW_KEYS, bindings
from cbtui.looks.pieces import Line
from cbtui.telling.provenance import doubt_in_brief, mark
from cbtui.widgets.window_view import WindowView
from engine.scheduling.modes import MODES
from engine.step.mask import layer_kinds
from engine.stream.records import StepRecord

#: What the empty panel says where the next step is a rectangle.
PADDED_PURPOSE = "A step's tokens, a row a request, and what is sampled after each"


class PackedRow(WindowView, can_focus=True):
    """The shown step's tensor, token by token, above a line of figures that stays while the rest scrolls.

    With focus nothing is folded, and a cursor stands on a token: the last line then says what it is.
    """

    PURPOSE = "A step's tokens, side by side in one row, and what is sampled after each"
    KEYS = ROW_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._record: StepRecord | None = None
        self._made_for: tuple[int, int, bool] = (0, 0, False)
        self._made = RowDrawing([], [])
        self._cursor: TokenAnchor | None = None

    # -- cursor ----------------------------------------------------------------------------------

    def action_cursor(self, dx: int, dy: int) -> None:
        """Move to the token beside, or on the next line."""
        place = self._place()
        if place is not None:
            self._point(moved(self._made.places, place, dx, dy))

    def action_page(self, by: int) -> None:
        """Move by as many lines as are visible."""
        for _ in range(max(1, self.scrollable_content_region.height - 1)):
            self.action_cursor(0, by)

    def action_edge(self, at_end: bool) -> None:
        """To the first or the last token."""
        if self._made.places:
            self._point(self._made.places[-1 if at_end else 0])

    def on_click(self, event: events.Click) -> None:
        """Point at the token under the mouse."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        y = offset.y + self.scroll_offset.y
        for place in self._made.places:
            if place.line == y and place.column <= offset.x <= place.column + place.width:
                self._point(place)
                return

    def _point(self, place: Place) -> None:
        if self._record is None:
            return
        self._cursor = anchor_of(self._record, place)
        self._reveal()
        self.redraw()

    def _place(self) -> Place | None:
        """Where the cursor stands; None: there is none, because the panel has no focus or no tokens."""
        if self._record is None or not self.has_focus:
            return None
        return place_of(self._record, self._made.places, self._cursor)

    def _reveal(self) -> None:
        place = self._place()
        if place is None:
            return
        body, y = max(1, self.scrollable_content_region.height - 1), self.scroll_offset.y
        # A token's position stands on the line below it.
        self.scroll_to(0, min(max(y, place.line + 2 - body), place.line), animate=False)

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor is there only with focus; without it the row is folded to what fits."""
        super().watch_has_focus(has_focus)
        if not has_focus:
            self.scroll_to(0, 0, animate=False)
        self.redraw()
        self._reveal()

    # -- drawing ---------------------------------------------------------------------------------

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Token lines, then the summary, or the cursor's token, if there is more than one line."""
        record = self._frame.record if self._frame else None
        if record is None or self._frame is None:
            is_padded = self._frame is not None and MODES[self._frame.state.mode].layout == "padded"
            self.title("Rectangle" if is_padded else "Packed row")
            self.extent(0, 0)
            return [((PADDED_PURPOSE, "dim"),)] if is_padded else self.purpose()
        body = height - 1 if height > 1 else height
        made_for = (width, height, self.has_focus)
        if record is not self._record or self._made_for != made_for:
            text = self._frame.ledger.token_bytes.get
            model = self._frame.state.model
            kinds = layer_kinds(model.facts.layer_windows if model else ())
            self._made = packed_row(
                record, self._frame.badges, text, width, body, is_whole=self.has_focus, kinds=kinds
            )
            self._record, self._made_for = record, made_for
        self.extent(0, len(self._made.lines) + height - body)
        first, count = self.scroll_offset.y, len(self._made.lines)
        part = f" · lines {first + 1}–{min(first + body, count)} of {count}" if count > body else ""
        doubts = (mark(self._frame.state.provenance, "row"), doubt_in_brief(record))
        self.title(" · ".join(filter(None, (title(record), *doubts))) + part)
        lines = self._made.lines[first : first + body]
        place = self._place()
        if place is not None and 0 <= place.line - first < len(lines):
            line = lines[place.line - first]
            token = text_between(line, place.column, place.column + place.width)
            lines[place.line - first] = overlaid(line, place.column, token, "target")
        if height > 1:
            lines += [()] * (body - len(lines))
            lines.append(summary(record, width) if place is None else self._words(record, place, width))
        return lines

    def _words(self, record: StepRecord, place: Place, width: int) -> Line:
        assert self._frame is not None
        text, block_size = self._frame.ledger.token_bytes.get, self._frame.state.config.block_size
        return token_words(record, place, self._frame.badges, text, block_size, width)
