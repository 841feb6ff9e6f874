"""The welcome: until the model is there a recorded trace plays in the panels, and yields to the first key.

Between the acting base and the main screen. Starts after the first picture and only where loading takes a
while, so it delays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.timer import Timer

from cbtui.following.frame import Frame
from cbtui.screens.acting import ActingScreen

if TYPE_CHECKING:
    from cbtui.following.welcome import Recorded


class WelcomingScreen(ActingScreen):
    """See the module's words."""

    recorded: Recorded | None = None
    _may_welcome = True
    _welcome_timer: Timer | None = None

    def welcome_soon(self) -> None:
        """Begin in a moment, unless there is something real to show by then."""
        from cbtui.following.welcome import BEGIN_AFTER_S

        self._welcome_timer = self.set_timer(BEGIN_AFTER_S, self.begin_welcome)

    def begin_welcome(self) -> None:
        """Begin now."""
        from cbtui.following.welcome import STEP_EVERY_S, Recorded

        if not self._may_welcome or self._has_news(self.follower.frame()):
            return
        self.recorded = Recorded()
        self._welcome_timer = self.set_interval(STEP_EVERY_S, self.advance_welcome)
        self.advance_welcome()

    def advance_welcome(self) -> None:
        """The recording's next step."""
        if self.recorded is not None:
            self.recorded.advance()
            self.draw()

    def end_welcome(self) -> None:
        """The first key, the first prompt, or the model: from now on only what is real is shown."""
        self._may_welcome = False
        if self._welcome_timer is not None:
            self._welcome_timer.stop()
            self._welcome_timer = None
        if self.recorded is not None:
            self.recorded = None
            self.draw()

    def shown_frame(self, frame: Frame) -> Frame:
        """What the panels show instead of the engine's own frame while the recording plays."""
        if self.recorded is None:
            return frame
        if self._has_news(frame):
            self.call_later(self.end_welcome)
            return frame
        return self.recorded.frame()

    @staticmethod
    def _has_news(frame: Frame) -> bool:
        """Whether there is anything of the user's own to see."""
        state = frame.state
        asked = state.waiting_count + state.arriving_count + len(frame.records)
        return state.status != "loading" or state.model is not None or asked > 0
