"""The mask panel: which query may attend to which key in the shown step."""

from __future__ import annotations

from cbtui.drawing.mask import Lookback, MaskDrawing, folded, legend, true_cells
from cbtui.pieces import Line
from cbtui.tokens import prose
from cbtui.widgets.window_view import WindowView
from engine.stream.ledger import Ledger
from engine.stream.records import Segment, StepRecord

#: Tokens whose text is made for the few keys shown beside a row.
_LOOKBACK_TOKENS = 24


def lookback(ledger: Ledger) -> Lookback:
    """The end of the text up to a segment's last token, from the ledger."""

    def text(segment: Segment) -> str:
        story = ledger[segment.request_id]
        prompt = story.request.prompt_token_ids
        stop = segment.position + segment.q_len
        start = max(0, stop - _LOOKBACK_TOKENS)
        split = len(prompt)
        tokens = (*prompt[start:stop], *story.output_token_ids[max(0, start - split) : max(0, stop - split)])
        shown = prose(ledger.decode(tokens).lstrip("\ufffd"))
        return f"…{shown}" if start else shown

    return text


class MaskGrid(WindowView, can_focus=True):
    """Queries × keys of the shown step, folded, or cell by cell with `toggle_true_cells`."""

    PURPOSE = "Which token may look at which, in every step: new keys █, cached keys ▒, blocked ·"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._is_true = False
        self._drawing: MaskDrawing | None = None
        self._key: tuple[object, ...] = ()

    @property
    def shows_true_cells(self) -> bool:
        """Whether every cell is drawn."""
        return self._is_true

    def toggle_true_cells(self) -> None:
        """Fold, or draw every cell; the arrows then scroll."""
        self._is_true = not self._is_true
        self.scroll_to(0, 0, animate=False)
        self.redraw()

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Heading, the visible part of the body, and the legend if a line is left for it."""
        record = self._frame.record if self._frame else None
        if record is None or self._frame is None:
            self.title("Mask")
            self.extent(0, 0)
            return self.purpose()
        drawing = self._drawn(record, width, height)
        self.extent(drawing.columns, drawing.count + 1)
        self.title(drawing.title + (" · arrows scroll" if self.scrolls else ""))
        x, y = self.scroll_offset
        lines = [drawing.heading(x, width)]
        shown = min(height - 1, drawing.count - y)
        lines.extend(drawing.line(y + number, x, width) for number in range(shown))
        if len(lines) < height:
            lines.extend([()] * (height - len(lines) - 1))
            lines.append(legend(record, width))
        return lines

    def _drawn(self, record: StepRecord, width: int, height: int) -> MaskDrawing:
        """The drawing of a step at this size, kept while neither changes."""
        key = (record, width, height, self._is_true)
        if self._drawing is None or not _same(key, self._key):
            assert self._frame is not None
            badges, look = self._frame.badges, lookback(self._frame.ledger)
            if self._is_true:
                self._drawing = true_cells(record, badges, look, width)
            else:
                self._drawing = folded(record, badges, look, width, height)
            self._key = key
        return self._drawing


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Records by identity: comparing two of them by value costs more than drawing one."""
    return len(one) == len(other) and one[0] is other[0] and one[1:] == other[1:]
