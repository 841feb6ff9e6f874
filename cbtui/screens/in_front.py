"""What stands in front of a screen: a running engine can be paused and stepped from there, too."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from textual.screen import ModalScreen

from cbtui.keys import ENGINE_KEYS, Key, bindings

T = TypeVar("T")


@runtime_checkable
class RunsAnEngine(Protocol):
    """A screen whose engine goes on until it is paused."""

    @property
    def is_paused(self) -> bool:
        """Whether it stands still, or will once it has taken in what keys have asked for."""
        ...

    def action_pause(self) -> None:
        """Pause it, or let it run on."""
        ...

    def action_step(self) -> None:
        """One step, then stay paused."""
        ...


class InFront(ModalScreen[T], Generic[T]):
    """The base of every question, form and view over a screen.

    Letters go to where text is typed, and to answers that have them; the function keys always work.
    """

    KEYS: ClassVar[tuple[Key, ...]] = tuple(
        replace(key, action=f"engine_behind('{key.action}')", label="") for key in ENGINE_KEYS
    )
    BINDINGS = bindings(KEYS)

    def action_engine_behind(self, action: str) -> None:
        """Pause or step what runs behind; the header, which shows it, may be covered."""
        behind = next(one for one in reversed(self.app.screen_stack) if not isinstance(one, ModalScreen))
        if not isinstance(behind, RunsAnEngine):
            return  # a lesson stands still by itself
        was_paused = behind.is_paused
        if action == "pause":
            behind.action_pause()
        else:
            behind.action_step()
        if behind.is_paused != was_paused:
            self.notify("‖ paused" if behind.is_paused else "▶ runs on", timeout=2, markup=False)
