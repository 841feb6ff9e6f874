"""A panel whose lines are requests: a cursor, keys and mouse. What a line says is the subclass' business."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.actions import SkipAction

from cbtui.following.frame import Frame
from cbtui.keys import LIST_KEYS, bindings
from cbtui.widgets.lines import LineMaker, LinesView
from cbtui.widgets.messages import RequestOpened, RequestSelected


class RequestList(LinesView, can_focus=True):
    """Lines of requests. Line `y` belongs to `request_ids[y]`; an empty id is no request."""

    KEYS = LIST_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.request_ids: Sequence[str] = ()
        self._selected: str | None = None
        self._frame: Frame | None = None
        #: Whether the panel was scrolled to the request under the cursor.
        self._has_followed = False
        self._place = 0

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        self._show(frame)

    def _show(self, frame: Frame) -> None:
        raise NotImplementedError

    def draw_requests(self, request_ids: Sequence[str], count: int, make: LineMaker, frame: Frame) -> None:
        """Show `count` lines, those of the requests first, and bring a newly selected one into view."""
        self.request_ids = request_ids
        moved = frame.selected != self._selected
        self._selected = frame.selected
        self.draw(count, make)
        if moved and frame.selected in request_ids:
            self._bring_into_view(request_ids.index(frame.selected))

    def on_resize(self) -> None:
        """Titles may depend on the height."""
        super().on_resize()
        if self._frame is not None:
            self._show(self._frame)

    def _bring_into_view(self, y: int) -> None:
        self._has_followed = self._has_followed or not 0 <= y - self.first_line < self.num_visible
        if y < self.first_line:
            self.scroll_to(y=y, animate=False)
        elif y >= self.first_line + self.num_visible:
            self.scroll_to(y=y - self.num_visible + 1, animate=False)

    def follow(self) -> None:
        """Stay with the request under the cursor while others before it go; once it is gone, show the first
        ones again."""
        if not self._has_followed:
            return
        if self._selected not in self.request_ids:
            self._has_followed = False
            self.scroll_to(y=0, animate=False)
        elif (place := self.request_ids.index(self._selected)) != self._place:
            self._bring_into_view(place)
            self._place = place

    def action_move(self, by: int) -> None:
        """Move the cursor by so many requests; from no cursor, to the first or last. Without any here, the
        screen looks for one elsewhere."""
        ids = [request_id for request_id in self.request_ids if request_id]
        if not ids:
            raise SkipAction
        if self._selected in ids:
            at = min(len(ids) - 1, max(0, ids.index(self._selected) + by))
        else:
            at = 0 if by > 0 else len(ids) - 1
        self._select(ids[at])

    def action_open(self) -> None:
        """Ask for the selected request's text; without one, the screen answers."""
        if self._selected not in self.request_ids or not self._selected:
            raise SkipAction
        self.post_message(RequestOpened(self._selected))

    def on_click(self, event: events.Click) -> None:
        """One click selects, two open."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        y = offset.y + self.first_line
        if y < len(self.request_ids) and self.request_ids[y]:
            self._select(self.request_ids[y])
            if event.chain == 2:
                self.post_message(RequestOpened(self.request_ids[y]))

    def _select(self, request_id: str) -> None:
        if request_id == self._selected:
            return
        # Taken for granted until the next frame says so, or a fast second key would be lost.
        self._selected = request_id
        self._bring_into_view(self.request_ids.index(request_id))
        self.post_message(RequestSelected(request_id))
