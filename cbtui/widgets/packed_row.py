"""The packed row panel: every token that goes through the model in the shown step."""

from __future__ import annotations

from cbtui.drawing.packed_row import packed_lines, summary, title
from cbtui.pieces import Line
from cbtui.widgets.window_view import WindowView
from engine.stream.records import StepRecord


class PackedRow(WindowView, can_focus=True):
    """The shown step's tensor, token by token, above a line of figures that stays while the rest scrolls."""

    PURPOSE = "Every token that goes through the model in a step, side by side, and what is sampled after it"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._record: StepRecord | None = None
        self._made_for: tuple[int, int] = (0, 0)
        self._made: list[Line] = []

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Token lines, then the summary if there is more than one line."""
        record = self._frame.record if self._frame else None
        if record is None or self._frame is None:
            self.title("Packed row")
            self.extent(0, 0)
            return self.purpose()
        body = height - 1 if height > 1 else height
        if record is not self._record or self._made_for != (width, height):
            text = self._frame.ledger.token_bytes.get
            self._made = packed_lines(record, self._frame.badges, text, width, body)
            self._record, self._made_for = record, (width, height)
        self.extent(0, len(self._made) + height - body)
        first, count = self.scroll_offset.y, len(self._made)
        part = f" · lines {first + 1}–{min(first + body, count)} of {count}" if count > body else ""
        self.title(title(record) + part)
        lines = self._made[first : first + body]
        if height > 1:
            lines += [()] * (body - len(lines))
            lines.append(summary(record, width))
        return lines
