"""A screen in front of the main one that shows its frames too, and lets the time keys through."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from cbtui.following.frame import Frame
from cbtui.keys import OVERLAY_KEYS, TRAVEL_KEYS, Key, bindings
from cbtui.screens.in_front import InFront


class Overlay(InFront[None]):
    """The main screen hands it every frame it draws itself.

    Args:
        frame: the first one.
    """

    _OWN: ClassVar[tuple[Key, ...]] = (
        *OVERLAY_KEYS,
        *(replace(key, action=f"behind('{key.action}')", label="") for key in TRAVEL_KEYS),
    )
    KEYS = (*_OWN, *InFront.KEYS)
    BINDINGS = bindings(_OWN)

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        raise NotImplementedError

    async def action_behind(self, action: str) -> None:
        """What a key does on the main screen."""
        await self.app.screen_stack[0].run_action(action)
