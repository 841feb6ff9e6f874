"""How long nothing was heard of a process, as far as somebody was listening. Pure: the clock is given."""

from __future__ import annotations

from collections.abc import Callable


class Silence:
    """Seconds without a sign of life, as far as somebody was listening.

    Two looks far apart count as `longest_gap_s`: an app that was itself stopped (job control, a paused
    virtual machine) must not take its own absence for the worker's.
    """

    def __init__(self, clock: Callable[[], float], longest_gap_s: float) -> None:
        self._clock = clock
        self._longest_gap_s = longest_gap_s
        self._seconds = 0.0
        self._looked = clock()

    def broken(self) -> None:
        """Something was heard."""
        self._seconds = 0.0
        self._looked = self._clock()

    def seconds(self) -> float:
        """How long it has lasted, this look included."""
        now = self._clock()
        self._seconds += min(now - self._looked, self._longest_gap_s)
        self._looked = now
        return self._seconds
