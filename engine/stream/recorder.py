"""Makes an engine's records: gathers what happens between two, and tells a step with all that came of it.

Reads the scheduler, changes nothing of it and decides nothing. A step is told from two looks: one before
its result is taken in, for that moves the requests on, and one after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.request import Request, RequestStatus
from engine.scheduling.schedule import Outcome, Schedule
from engine.scheduling.scheduler import Scheduler
from engine.step.geometry import ArenaShape, Geometry, lay_out
from engine.step.plan import Plan, Reply, SampledToken
from engine.stream.pending import BlockMoves, PendingEvents
from engine.stream.record_parts import (
    admissions,
    block_moves,
    count_tokens,
    num_kv_tokens,
    preemptions,
    releases,
    request_record,
    segments_of,
    slots_of_step,
    waiting_now,
    why_ignored,
)
from engine.stream.records import (
    CACHED_RUNS_EVERY,
    QuietRecord,
    Release,
    StepRecord,
    TokenCounts,
    Verification,
    WaitingRecord,
)

#: Settings whose changes are told.
LIVE_SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "policy", "prefix_caching")


class StepTimes(NamedTuple):
    """When a step began and ended on the engine clock, and what scheduling took of it, seconds."""

    start_s: float
    end_s: float
    schedule_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A step whose result is not taken in yet: what of its record can be read only now.

    Attributes:
        prompt_lengths: tokens of each scheduled request's prompt, by request id.
        slots: each row's slot, by request id.
        waiting_count, waiting, draining: as in `StepRecord`.
    """

    schedule: Schedule
    plan: Plan
    geometry: Geometry
    tokens: TokenCounts
    prompt_lengths: dict[str, int]
    slots: dict[str, int]
    waiting_count: int
    waiting: tuple[WaitingRecord, ...]
    draining: int


class Recorder:
    """Writes the records of one engine.

    Args:
        scheduler: the engine's.
        arena: shape of its KV cells.
        clock: engine clock.
        token_bytes: a token id's bytes; None leaves them out.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        arena: ArenaShape,
        clock: EngineClock,
        token_bytes: Callable[[int], bytes] | None,
    ) -> None:
        self._scheduler = scheduler
        self._arena = arena
        self._clock = clock
        self._pending = PendingEvents(token_bytes)
        self._seen_blocks = BlockMoves()
        self._said_cached = -1

    # -- what happens between two records -----------------------------------------------------

    def submitted(self, request: Request, prompt_text: str, label: str, num_template_tokens: int) -> None:
        """A request is there."""
        self._pending.submitted(request_record(request, prompt_text, label, num_template_tokens))

    def ignored(self, request: Request) -> None:
        """A request ended at once: it can never fit."""
        why = why_ignored(request, self._scheduler.config)
        self._pending.finished(request, None, self._clock.now(), why)

    def changed(self, name: str, before: str, after: str) -> None:
        """A setting is another one from now on."""
        self._pending.changed(name, before, after)

    def configured(self, before: EngineConfig, after: EngineConfig) -> None:
        """Settings were changed."""
        for name in LIVE_SETTINGS:
            if getattr(before, name) != getattr(after, name):
                self._pending.changed(name, str(getattr(before, name)), str(getattr(after, name)))
        self.policy_given_up(after)

    def policy_given_up(self, before: EngineConfig) -> None:
        """Say that a policy was given up, where that has happened."""
        faults, policy = self._scheduler.policy_faults, self._scheduler.config.policy
        for fault in faults:
            self._pending.error(fault)
        if faults and before.policy != policy:
            self._pending.changed("policy", before.policy, policy)
        faults.clear()

    def error(self, message: str) -> None:
        """A fault, in a sentence."""
        self._pending.error(message)

    def verified(self, verification: Verification) -> None:
        """A finished request was checked alone."""
        self._pending.verified(verification)

    def outcome(
        self, outcome: Outcome, slots: Mapping[str, int | None], time_s: float, error: str = ""
    ) -> None:
        """Requests ended, and slots became free.

        Args:
            slots: in which slot each was, by request id.
            time_s: when, on the engine clock.
            error: why those in error ended.
        """
        for request in outcome.finished:
            cause = error if request.status is RequestStatus.FINISHED_ERROR else ""
            self._pending.finished(request, slots.get(request.request_id), time_s, cause)
        self._pending.released(releases(outcome.released), outcome.barrier)

    # -- records ------------------------------------------------------------------------------

    def begun(self, schedule: Schedule, plan: Plan) -> Begun:
        """Look at a step that has run, before its result is taken in."""
        scheduler = self._scheduler
        geometry = lay_out(plan, self._arena)
        return Begun(
            schedule=schedule,
            plan=plan,
            geometry=geometry,
            tokens=count_tokens(schedule, geometry),
            prompt_lengths={
                r.request_id: r.num_prompt_tokens for r in schedule.rows if isinstance(r, Request)
            },
            slots={row.request_id: row.slot for row in plan.rows},
            waiting_count=len(scheduler.waiting),
            waiting=waiting_now(scheduler, schedule.blocked),
            draining=len(scheduler.running) if scheduler.is_draining else 0,
        )

    def step(
        self, begun: Begun, sampled: Sequence[SampledToken | None], reply: Reply | None, times: StepTimes
    ) -> StepRecord:
        """The record of a step whose result has been taken in.

        Args:
            sampled: what was sampled after each row of the plan.
            reply: the runner's; None: the step failed.
        """
        scheduler, schedule, plan, geometry = self._scheduler, begun.schedule, begun.plan, begun.geometry
        pool = scheduler.kv.pool
        events = self._pending.take(
            admitted=admissions(schedule),
            preempted=preemptions(schedule),
            released_before=releases(schedule.released),
            sampled=[i for token in sampled if token for i in (token.token_id, *(t for t, _ in token.top))],
            blocks=self._blocks_moved(),
        )
        return StepRecord(
            step=plan.step,
            epoch=plan.epoch,
            mode=scheduler.mode.name,
            policy=scheduler.policy.name,
            layout=plan.layout,
            start_s=times.start_s,
            end_s=times.end_s,
            shape=geometry.shape,
            num_keys=geometry.num_keys,
            tokens=begun.tokens,
            max_num_batched_tokens=scheduler.config.max_num_batched_tokens,
            max_num_seqs=scheduler.config.max_num_seqs,
            segments=segments_of(plan, geometry, sampled, begun.prompt_lengths),
            slots=slots_of_step(scheduler, schedule, begun.slots),
            waiting_count=begun.waiting_count,
            waiting=begun.waiting,
            free_blocks=pool.num_free,
            num_blocks=pool.num_blocks,
            kv_tokens=num_kv_tokens(scheduler),
            events=events,
            draining=begun.draining,
            schedule_s=times.schedule_s,
            forward_s=reply.forward_s if reply else 0.0,
            sample_s=reply.sample_s if reply else 0.0,
            failed=reply is None,
            cached_blocks=pool.num_cached,
            cached_runs=self._cached_runs(plan.step, has_entered=bool(schedule.admitted)),
        )

    def quiet(self, step: int) -> QuietRecord | None:
        """What changed since the last record without a step; None if nothing did.

        Args:
            step: number of the last one.
        """
        if self._pending.is_empty:
            return None
        events = self._pending.take(blocks=self._blocks_moved())
        return QuietRecord(step, self._clock.now(), events)

    def written_off(self, requests: Iterable[Request], cause: str, step: int) -> QuietRecord:
        """The last record of an engine that broke: all its requests ended, and every slot is free."""
        released = []
        for request in requests:
            if request.slot is not None:
                released.append(Release(request.request_id, request.slot))
            self._pending.finished(request, request.slot, self._clock.now(), cause)
        held = self._scheduler.held.items()
        released += [Release(one.request.request_id, slot) for slot, one in held]
        self._pending.released(released, barrier=False)
        self._pending.error(cause)
        return QuietRecord(step, self._clock.now(), self._pending.take())

    def _blocks_moved(self) -> BlockMoves:
        moved, self._seen_blocks = block_moves(self._scheduler.kv.pool, self._seen_blocks)
        return moved

    def _cached_runs(self, step: int, *, has_entered: bool) -> tuple[tuple[int, int], ...] | None:
        """Which free blocks hold a prefix, where the record has to say it."""
        pool = self._scheduler.kv.pool
        if not pool.num_cached:
            return None
        is_known = pool.cached_version == self._said_cached
        if is_known and not has_entered and step % CACHED_RUNS_EVERY:
            return None
        self._said_cached = pool.cached_version
        return pool.cached_runs()
