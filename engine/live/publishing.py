"""From how an engine loop stands to the state a screen reads, published when it is news.

Builds `EngineState`; decides nothing. The state is made in the engine's thread, for the structures it is
made from are that thread's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.arrivals import Arrivals
from engine.live.channels import Mailbox
from engine.live.load import LoadNow
from engine.live.model_life import ModelLife
from engine.live.state import EngineState, Failure, Rejection, Status
from engine.runner import Loading
from engine.stream.record_parts import blocked_now, slots_now, waiting_now


@dataclass(frozen=True, slots=True)
class LoopStanding:
    """How a loop stands, beside its engine and its arrivals. `EngineState` says what each field is."""

    status: Status
    paused: bool
    until: str
    loading: Loading | None
    failure: Failure | None
    mode: str
    pending_mode: str | None
    config: EngineConfig
    pending_config: EngineConfig | None
    speed: float | None
    num_records: int
    rejection: Rejection | None
    load: LoadNow | None
    verifying: int | None


def status_of(model: ModelLife, *, is_closed: bool, is_standing: bool, has_work: bool) -> Status:
    """The state in a word.

    Args:
        is_standing: paused, and no single steps are left to do.
        has_work: something runs, waits or arrives.
    """
    if model.failure is not None:
        return "failed"
    if is_closed:
        return "closed"
    if not model.is_ready:
        return "loading"
    if is_standing:
        return "paused"
    return "running" if has_work else "idle"


class Publisher:
    """Puts states into a mailbox.

    Args:
        mailbox: where a screen finds the newest.
        now_s: a monotonic clock, seconds.
    """

    def __init__(self, mailbox: Mailbox, now_s: Callable[[], float]) -> None:
        self._mailbox = mailbox
        self._now_s = now_s
        self._version = 0
        self._seen: object = None
        self._published_at = float("-inf")

    @property
    def age_s(self) -> float:
        """Seconds since the newest state."""
        return self._now_s() - self._published_at

    def publish(
        self,
        standing: LoopStanding,
        engine: Engine | None,
        arrivals: Arrivals,
        time_s: float,
        *,
        if_news: bool,
    ) -> None:
        """Publish how things stand.

        Args:
            time_s: on the engine clock.
            if_news: not if it would be the same again.
        """
        news = (standing, engine.step_number if engine else 0, len(arrivals))
        if if_news and news == self._seen:
            return
        self._seen = news
        self._published_at = self._now_s()
        self._version += 1
        self._mailbox.publish(_state(self._version, standing, engine, arrivals, time_s))


def _state(
    version: int, standing: LoopStanding, engine: Engine | None, arrivals: Arrivals, time_s: float
) -> EngineState:
    scheduler = engine.scheduler if engine else None
    is_loading = standing.status == "loading"
    blocked = blocked_now(scheduler, standing.paused) if scheduler else ""
    has_model = standing.status not in ("loading", "failed")
    return EngineState(
        version=version,
        status=standing.status,
        paused=standing.paused,
        until=standing.until,
        loading=standing.loading if is_loading else None,
        failure=standing.failure,
        model=engine.info if engine else None,
        mode=standing.mode,
        pending_mode=standing.pending_mode,
        draining=len(scheduler.running) if scheduler and scheduler.is_draining else 0,
        config=standing.config,
        pending_config=standing.pending_config,
        speed=standing.speed,
        step=engine.step_number if engine else 0,
        time_s=time_s,
        slots=slots_now(scheduler) if scheduler else (),
        waiting_count=len(scheduler.waiting) if scheduler else 0,
        waiting=waiting_now(scheduler, "loading" if is_loading else blocked) if scheduler else (),
        arriving_count=len(arrivals),
        arriving=arrivals.shown("encoding" if has_model else "loading"),
        num_records=standing.num_records,
        rejection=standing.rejection,
        load=standing.load,
        verifying=standing.verifying,
    )
