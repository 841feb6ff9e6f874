"""A screen in front of the main one that shows its frames too, and lets the time keys through."""

from __future__ import annotations

from textual.binding import Binding
from textual.screen import ModalScreen

from cbtui.following.frame import Frame
from cbtui.keys import TRAVEL_KEYS


class Overlay(ModalScreen[None]):
    """The main screen hands it every frame it draws itself.

    Args:
        frame: the first one.
    """

    BINDINGS = [
        Binding("escape,q", "dismiss", "Close", id="overlay.close", tooltip="Back to the screen"),
        *(
            Binding(key.keys, f"behind('{key.action}')", key.tooltip, show=False, id=key.id)
            for key in TRAVEL_KEYS
        ),
    ]

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        raise NotImplementedError

    async def action_behind(self, action: str) -> None:
        """What a key does on the main screen."""
        await self.app.screen_stack[0].run_action(action)
