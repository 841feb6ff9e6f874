"""What happened: the narration as a panel, and as two lines for smaller screens."""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line
from cbtui.telling.narration import EventLog, brief, narration
from cbtui.widgets.lines import LinesView


class _Telling(LinesView):
    """Words about a frame, wrapped to the panel's width."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._log = EventLog()
        self._frame: Frame | None = None

    def tell(self, frame: Frame, log: EventLog, cells: int) -> list[Line]:
        """The words, in lines of at most `cells` cells."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        lines = self.tell(frame, self._log, max(12, self.line_width))
        self.draw(len(lines), lambda y, _: lines[y] if y < len(lines) else ())

    def on_resize(self) -> None:
        """Text is wrapped to the width."""
        super().on_resize()
        if self._frame is not None:
            self.show(self._frame)


class WhatHappened(_Telling, can_focus=True):
    """The panel: figures, sentences while the view stands still, the last events. Scrolls."""

    BORDER_TITLE = "What happened"

    def tell(self, frame: Frame, log: EventLog, cells: int) -> list[Line]:
        return narration(frame, log, cells)


class WhatHappenedBrief(_Telling):
    """Two lines of what happened."""

    DEFAULT_CSS = "WhatHappenedBrief { height: 2; overflow-y: hidden; }"

    def tell(self, frame: Frame, log: EventLog, cells: int) -> list[Line]:
        return brief(frame, log, cells)
