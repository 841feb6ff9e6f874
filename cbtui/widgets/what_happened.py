"""What happened: the narration as a panel, and as two lines for smaller screens."""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.telling.narration import EventLog, brief, narration
from cbtui.widgets.lines import LinesView


class WhatHappened(LinesView, can_focus=True):
    """The panel: figures, sentences while the view stands still, the last events. Scrolls."""

    BORDER_TITLE = "What happened"
    DEFAULT_CSS = "WhatHappened { padding: 0 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._log = EventLog()
        self._frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        lines = narration(frame, self._log, max(12, self.line_width))
        self.draw(len(lines), lambda y, _: lines[y] if y < len(lines) else ())

    def on_resize(self) -> None:
        """Text is wrapped to the width."""
        super().on_resize()
        if self._frame is not None:
            self.show(self._frame)


class WhatHappenedBrief(LinesView):
    """Two lines of what happened."""

    DEFAULT_CSS = "WhatHappenedBrief { height: 2; padding: 0 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._log = EventLog()
        self._frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        lines = brief(frame, self._log, max(12, self.line_width))
        self.draw(len(lines), lambda y, _: lines[y] if y < len(lines) else ())

    def on_resize(self) -> None:
        """Text is wrapped to the width."""
        super().on_resize()
        if self._frame is not None:
            self.show(self._frame)
