"""The timeline panel: what every slot did in every step since the engine was last empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from textual import events

from cbtui.drawing.slot_history import SlotHistory, scale_for
from cbtui.drawing.timeline import TimeAxis, arrange, gutter_width, scale_words, timeline_lines
from cbtui.following.frame import Frame
from cbtui.keys import TIMELINE_KEYS, bindings
from cbtui.looks.pieces import Line
from cbtui.telling.naming import Badges
from cbtui.widgets.messages import StepChosen
from cbtui.widgets.window_view import WindowView

#: How much of the stretch is in view: all of it, a step a column, or a scale between the two.
Zoom = Literal["whole", "steps", "between"]


def zoom_scale(zoom: Zoom, whole: int) -> int:
    """Steps a column at a zoom, where the whole stretch takes `whole`: both are powers of two."""
    if zoom == "whole":
        return whole
    return 1 if zoom == "steps" else 1 << (whole.bit_length() // 2)


def next_zoom(zoom: Zoom, whole: int) -> Zoom:
    """The zoom after this one; those that would look the same are left out."""
    order: tuple[Zoom, ...] = ("whole", "steps", "between")
    following = order[(order.index(zoom) + 1) % 3]
    if following == "between" and zoom_scale("between", whole) in (1, whole):
        return "whole"
    return following


class Timeline(WindowView, can_focus=True):
    """Slots × steps of the shown stretch (`show`), or of a finished run (`draw_run`).

    Looking back, the stretch stays and what came later is faint; a click goes to a step.
    """

    PURPOSE = "What every slot did in every step: A prefill, ▄ decode, ░ dead, · idle"
    KEYS = TIMELINE_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._history = SlotHistory()
        self._shown: int | None = None
        self._badges: Badges | None = None
        self._scale_steps = 0
        self._words_before = "Timeline"
        self._zoom: Zoom = "whole"
        #: First column in view, if not all are; None: where the shown step is.
        self._first: int | None = None
        self._axis: TimeAxis | None = None

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        shown = None if frame.is_live else frame.step
        if shown != self._shown or frame.lanes.first_step != self._history.first_step:
            self._first = None
        self._shown, self._history, self._badges = shown, frame.lanes, frame.badges
        self.redraw()

    def draw_run(
        self, history: SlotHistory, badges: Badges, *, steps: int = 0, name: str = "Timeline"
    ) -> None:
        """Draw a finished run.

        Args:
            history: of that run.
            badges: which name its requests.
            steps: draw on the scale of a run of so many steps, so that two panels can be compared.
            name: beginning of the title.
        """
        self._words_before, self._scale_steps = name, steps
        self._history, self._badges, self._shown = history, badges, None
        self.redraw()

    def share_scale(self, steps: int) -> None:
        """Draw on the scale of a run of so many steps if that is longer; 0: only on its own."""
        if steps != self._scale_steps:
            self._scale_steps = steps
            self.redraw()

    def scroll_to_slot(self, first: int) -> None:
        """Show slots from `first` on, as far as that leaves no line empty."""
        self.scroll_to(y=first, animate=False)

    # -- zoom ---------------------------------------------------------------------------------

    def zoom(self) -> str:
        """The next zoom; what to say about it."""
        whole = self._whole_scale(self.scrollable_content_region.width)
        if whole == 1:
            self._zoom, self._first = "whole", None
            return "the whole stretch fits, one step a column"
        self._zoom, self._first = next_zoom(self._zoom, whole), None
        self.redraw()
        words = scale_words(zoom_scale(self._zoom, whole))
        return f"timeline: {words}" + ("" if self._zoom == "whole" else "; ←→ scroll it when it has focus")

    def _whole_scale(self, width: int) -> int:
        steps = max(self._history.num_steps, self._scale_steps)
        return scale_for(steps, width - gutter_width(self._history.num_slots))

    def action_pan(self, by: int) -> None:
        """Scroll by so many columns."""
        if self._axis is not None and self._zoom != "whole":
            first = (self._axis.first_step - self._history.first_step) // self._axis.scale
            self._first = max(0, first + by)
            self.redraw()

    def _first_column(self, columns: int, room: int, shown: int) -> int:
        """The first column in view of `columns`, when `room` of them fit and one of them is shown."""
        most = max(0, columns - room)
        if self._first is not None and self._first < most:
            return self._first
        self._first = None
        return most if self._shown is None else min(most, max(0, shown - room * 2 // 3))

    # -- drawing ------------------------------------------------------------------------------

    def compose_window(self, width: int, height: int) -> list[Line]:
        """Band, the visible slots and the axis."""
        history = self._history
        if self._badges is None or history.num_slots == 0:
            self._axis = None
            self.title(self._words_before)
            self.extent(0, 0)
            return self.purpose()
        axis = self._axis = self._axis_in(width - gutter_width(history.num_slots))
        shown = arrange(height, history.num_slots, has_marks=len(history.marks) > 1).slots
        # Headings stay, so the picture scrolls by the slots that do not fit.
        self.extent(0, height + history.num_slots - shown)
        first = min(self.scroll_offset.y, history.num_slots - shown)
        self.title(self._words(axis, first, shown))
        return timeline_lines(history, self._badges, axis, width, height, first)

    def _axis_in(self, room: int) -> TimeAxis:
        """The axis for so many columns."""
        history = self._history
        scale = zoom_scale(self._zoom, scale_for(max(history.num_steps, self._scale_steps), room))
        whole = TimeAxis(history.first_step, scale, history.last_step, self._shown)
        if whole.columns <= room:
            return whole
        first = self._first_column(whole.columns, room, whole.column(self._shown or history.last_step))
        start = history.first_step + first * scale
        return replace(whole, first_step=start, last_step=min(history.last_step, start + room * scale - 1))

    def _words(self, axis: TimeAxis, first: int, shown: int) -> str:
        history = self._history
        slots = history.num_slots
        part = f" · {first}–{first + shown - 1} of {slots}" if shown < slots else ""
        if axis.first_step > history.first_step or axis.last_step < history.last_step:
            part += f" · steps {axis.first_step:,}–{axis.last_step:,} of {history.last_step:,}"
        return f"{self._words_before}  {scale_words(axis.scale)}{part}"

    def on_click(self, event: events.Click) -> None:
        """Go to the step under the mouse."""
        offset = event.get_content_offset(self)
        if offset is None or self._axis is None:
            return
        column = offset.x - gutter_width(self._history.num_slots)
        if 0 <= column < self._axis.columns:
            self.post_message(StepChosen(self._axis.last_of(column)))
