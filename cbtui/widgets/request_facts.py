"""Everything about one request beside its text: states, latencies, blocks, tokens. Scrolls."""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.telling.request_story import StoryLines
from cbtui.widgets.lines import LinesView


class RequestFacts(LinesView, can_focus=True):
    """The lines of `StoryLines`."""

    DEFAULT_CSS = "RequestFacts { background: $surface; }"

    def __init__(self, request_id: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._request_id = request_id
        self._frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        if self.line_width <= 0:
            return
        lines = StoryLines(frame, self._request_id, self.line_width)
        self.draw(lines.count, lambda y, _: lines.line(y))

    def on_resize(self) -> None:
        """Text is wrapped to the width."""
        super().on_resize()
        if self._frame is not None:
            self.show(self._frame)
