"""Whether records go on: paused, so many single steps, or until something has happened.

Every loop that feeds a screen has one: an engine's, a race's, a recording's, an observed server's. Knows
no clock: steps a second are `speed.py`'s.
"""

from __future__ import annotations

from engine.live.commands import Pause, Resume, RunUntil, Step
from engine.stream.records import Record


class Pace:
    """What the last of these commands asked for, as far as it is not done yet.

    Args:
        paused: begin paused.

    Attributes:
        steps_left: single steps still to be taken.
    """

    def __init__(self, paused: bool) -> None:
        self.is_paused = paused
        self.steps_left = 0
        self._until: RunUntil | None = None

    @property
    def is_standing(self) -> bool:
        """Paused, and no single steps are left to take."""
        return self.is_paused and not self.steps_left

    @property
    def is_awaiting(self) -> bool:
        """It runs on until something has happened."""
        return self._until is not None

    @property
    def until(self) -> str:
        """What it runs on for, in words; empty: for nothing."""
        return self._until.words if self._until else ""

    def apply(self, command: Pause | Resume | Step | RunUntil) -> None:
        """Do as a command asks."""
        match command:
            case Pause():
                self.is_paused, self.steps_left, self._until = True, 0, None
            case Resume():
                self.is_paused, self.steps_left, self._until = False, 0, None
            case Step(count):
                self.is_paused, self._until = True, None
                self.steps_left += count
            case RunUntil():
                self.is_paused, self.steps_left, self._until = False, 0, command

    def step_taken(self) -> None:
        """One of the single steps, if there are any, is done."""
        self.steps_left = max(0, self.steps_left - 1)

    def stops_after(self, record: Record, *, is_drained: bool) -> bool:
        """Pause after this record if it is what was waited for; whether it was.

        Args:
            is_drained: nothing runs, waits or arrives after it.
        """
        if self._until is None or not self._until.is_reached(record, is_drained):
            return False
        self.is_paused, self._until = True, None
        return True

    def over(self) -> None:
        """Nothing comes any more: what was waited for does not, either."""
        self.steps_left = 0
        if self._until is not None:
            self.is_paused, self._until = True, None
