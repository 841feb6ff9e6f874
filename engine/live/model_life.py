"""The model process over a loop's life: loading, ready, dead, started again or given up.

Starts the runner; knows nothing of engines, requests or commands.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.live.state import Failure
from engine.runner import LoadFailed, Loading, ModelRunner

#: A second death of the model process, or fault of the engine, within this time stops the restarts, seconds.
DEATHS_APART_S = 60.0


def other_model(death_reason: str) -> str:
    """Why requests end when the model was started again from files that are others now."""
    before = f"{death_reason}; " if death_reason else ""
    return f"{before}the model was read again from files that were changed meanwhile, so it is another one"


class ModelLife:
    """Whether there is a model, and why not.

    Args:
        runner: started here, at the beginning and after a death.
        now_s: a monotonic clock, seconds.

    Attributes:
        is_ready: the model is loaded.
        loading: progress while it is not.
        failure: why there will be none; a restart may be asked for.
        death_reason: of the last death, a sentence.
    """

    def __init__(self, runner: ModelRunner, now_s: Callable[[], float]) -> None:
        self._runner = runner
        self._now_s = now_s
        self._last_death: tuple[float, int | None] | None = None
        self._last_fault_at = float("-inf")
        self.is_ready = False
        self.loading: Loading | None = Loading("starting the model process")
        self.failure: Failure | None = None
        self.death_reason = ""

    @property
    def can_run(self) -> bool:
        """Whether a step may be run."""
        return self.is_ready and self.failure is None

    def ready(self) -> None:
        """It is loaded, and the engine has its arena."""
        self.is_ready, self.loading, self.failure = True, None, None

    def cannot_load(self, event: LoadFailed) -> None:
        """There will be no model."""
        self.is_ready, self.failure = False, Failure(event.stage, event.message, event.hint)

    def died(self, reason: str, step: int | None, *, start_again: bool) -> None:
        """Start it again, unless it dies too often to be worth it: twice within a minute, or twice in the
        same step.

        Args:
            step: in which it died; None: between steps.
            start_again: False when the loop is ending anyway.
        """
        self.is_ready, self.death_reason = False, reason
        if not start_again:
            return
        now, last = self._now_s(), self._last_death
        self._last_death = (now, step)
        if last is not None and (now - last[0] < DEATHS_APART_S or (step is not None and step == last[1])):
            self.failure = Failure("model process", reason)
        else:
            self.loading = Loading("restarting the model process")
            self._runner.start()

    def engine_broke(self, cause: str) -> None:
        """The engine on it had a fault; the second within a minute is a failure."""
        now, last = self._now_s(), self._last_fault_at
        self._last_fault_at = now
        if now - last < DEATHS_APART_S:
            self.failure = Failure("engine", cause)

    def restart(self) -> None:
        """Start it again after a failure, with a clean slate; nothing where there is none."""
        if self.failure is not None:
            self.failure, self._last_death = None, None
            self.loading = Loading("starting the model process")
            self._runner.start()
