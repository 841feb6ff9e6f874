"""The timeline panel: what every slot did in every step since the engine was last empty."""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.drawing.slot_history import SlotHistory, scale_for
from cbtui.drawing.timeline import TimeAxis, arrange, gutter_width, scale_words, timeline_lines
from cbtui.frame import Frame
from cbtui.naming import Badges
from cbtui.pieces import Line
from cbtui.widgets.window_view import WindowView
from engine.stream.records import Record


class Timeline(WindowView, can_focus=True):
    """Slots × steps of the run under way (`show`), or of a finished one (`draw_run`).

    The scale always fits the whole stretch; looking back keeps it and leaves the rest blank.
    """

    PURPOSE = "What every slot did in every step: A prefill, ▄ decode, ░ dead, · idle"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._history = SlotHistory()
        self._first: Record | None = None
        self._num_fed = 0
        self._last_step = 0
        self._badges: Badges | None = None
        self._scale_steps = 0
        self._words_before = "Timeline"

    def show(self, frame: Frame) -> None:
        """Draw a frame; costs what is new in its records."""
        self._frame = frame
        self._feed(frame.records, frame.badges)
        self._last_step = frame.record.step if frame.record else self._history.last_step
        self.redraw()

    def draw_run(
        self, records: Sequence[Record], badges: Badges, *, steps: int = 0, name: str = "Timeline"
    ) -> None:
        """Draw a finished run.

        Args:
            records: of that run.
            badges: which name its requests.
            steps: draw on the scale of a run of so many steps, so that two panels can be compared.
            name: beginning of the title.
        """
        self._words_before, self._scale_steps = name, steps
        self._feed(records, badges)
        self._last_step = self._history.last_step
        self.redraw()

    def share_scale(self, steps: int) -> None:
        """Draw on the scale of a run of so many steps if that is longer; 0: only on its own."""
        if steps != self._scale_steps:
            self._scale_steps = steps
            self.redraw()

    def scroll_to_slot(self, first: int) -> None:
        """Show slots from `first` on, as far as that leaves no line empty."""
        self.scroll_to(y=first, animate=False)

    def _feed(self, records: Sequence[Record], badges: Badges) -> None:
        self._badges = badges
        first = records[0] if records else None
        if first is not self._first:
            self._history, self._num_fed, self._first = SlotHistory(), 0, first
        for number in range(self._num_fed, len(records)):
            self._history.apply(records[number])
        self._num_fed = max(self._num_fed, len(records))

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Band, the visible slots and the axis."""
        history = self._history
        if self._badges is None or history.num_slots == 0:
            self.title(self._words_before)
            self.extent(0, 0)
            return self.purpose()
        scale = scale_for(max(history.num_steps, self._scale_steps), width - gutter_width(history.num_slots))
        axis = TimeAxis(history.first_step, scale, min(self._last_step, history.last_step))
        shown = arrange(height, history.num_slots, has_marks=len(history.marks) > 1).slots
        # Headings stay, so the picture scrolls by the slots that do not fit.
        self.extent(0, height + history.num_slots - shown)
        first = min(self.scroll_offset.y, history.num_slots - shown)
        self.title(self._words(scale, first, shown))
        return timeline_lines(history, self._badges, axis, width, height, first)

    def _words(self, scale: int, first: int, shown: int) -> str:
        slots = self._history.num_slots
        part = f" · {first}–{first + shown - 1} of {slots}" if shown < slots else ""
        return f"{self._words_before}  {scale_words(scale)}{part}"
