"""Steps a second at most: how long the next one has to wait. Knows nothing of what a step is."""

from __future__ import annotations

from collections.abc import Callable


class SpeedLimit:
    """Keeps steps apart.

    Args:
        steps_per_s: at most; None: as fast as they come.
        now_s: monotonic seconds.
    """

    def __init__(self, steps_per_s: float | None, now_s: Callable[[], float]) -> None:
        self.steps_per_s = steps_per_s
        self._now_s = now_s
        self._next_at = 0.0

    def set(self, steps_per_s: float | None) -> None:
        """Another limit, from the next step on; that one waits for nothing.

        Raises:
            ValueError: it is not above 0.
        """
        if steps_per_s is not None and not steps_per_s > 0:
            raise ValueError(f"speed must be more than 0 steps a second, not {steps_per_s}")
        self.steps_per_s, self._next_at = steps_per_s, 0.0

    def step_begins(self) -> None:
        """A step begins now: the next one is due a step's time later."""
        if self.steps_per_s is not None:
            self._next_at = self._now_s() + 1 / self.steps_per_s

    @property
    def wait_s(self) -> float:
        """Seconds until the next step may begin; 0 or less: it may."""
        return 0.0 if self.steps_per_s is None else self._next_at - self._now_s()
