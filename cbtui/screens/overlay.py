"""A screen in front of the main one that shows its frames too, and lets the time keys through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.content import Content
from textual.widget import Widget

from cbtui.following.frame import Frame
from cbtui.keys import OVERLAY_KEYS, TRAVEL_KEYS, Key, bindings
from cbtui.looks.tokens import cell_width
from cbtui.screens.in_front import InFront


def hints_in(hints: Sequence[str], cells: int) -> str:
    """The first hints that fit, the very first in any case."""
    fitting = (" " + " · ".join(hints[:number]) + " " for number in range(len(hints), 0, -1))
    return next((text for text in fitting if cell_width(text) <= cells), f" {hints[0]} ")


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

    #: What its keys do, the most needed first; as many as there is room for stand in its border.
    HINTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        raise NotImplementedError

    def hint(self, box: Widget) -> None:
        """Name keys in the lower border of its box, once that has its size."""
        box.border_subtitle = Content(hints_in(self.HINTS, box.size.width - 2))

    async def action_behind(self, action: str) -> None:
        """What a key does on the main screen."""
        await self.app.screen_stack[0].run_action(action)
