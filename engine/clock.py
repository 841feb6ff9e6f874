"""The engine clock: seconds during which steps ran. It stands still while paused, idle or held back."""

from __future__ import annotations

import time
from collections.abc import Callable


class EngineClock:
    """Accumulates the time between `start()` and `stop()`.

    `now()` may be read from another thread, also while a step runs: a prompt typed during a forward
    arrives during it.

    Args:
        source: monotonic seconds; tests inject their own.
    """

    def __init__(self, source: Callable[[], float] = time.perf_counter) -> None:
        self.source = source
        # One tuple, replaced as a whole: a reader in another thread never sees half a change.
        self._state: tuple[float, float | None] = (0.0, None)

    def start(self) -> None:
        self._state = (self.now(), self.source())

    def stop(self) -> None:
        self._state = (self.now(), None)

    def now(self) -> float:
        elapsed, started = self._state
        return elapsed if started is None else elapsed + (self.source() - started)
