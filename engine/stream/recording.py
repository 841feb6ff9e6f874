"""From a schedule to a plan, and from a plan and its result to the structs of a record.

Pure functions between the scheduler's mutable world and the immutable ones on either side of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.request import Request, RequestStatus
from engine.scheduling.scheduler import HeldSlot, Schedule, Scheduler
from engine.step.geometry import Geometry
from engine.step.plan import Plan, PlanRow, SampledToken, SegmentKind
from engine.stream.records import (
    WAITING_SHOWN,
    Admission,
    Preemption,
    Release,
    Segment,
    SlotRecord,
    TokenCounts,
    WaitingRecord,
)


def plan_row(
    row: Request | HeldSlot, schedule: Schedule, tables: dict[str, list[int]], n_top: int
) -> PlanRow:
    """The plan row of a scheduled request or a held slot."""
    if isinstance(row, HeldSlot):
        request = row.request
        position = request.num_computed_tokens
        table = list(tables.get(request.request_id, ()))
        kv_len = position + 1 if row.has_blocks else 1
        return PlanRow(request.request_id, row.slot, "dead", [row.token_id], position, kv_len, table)
    assert row.slot is not None
    start = row.num_computed_tokens
    stop = start + schedule.counts[row.request_id]
    caught_up = stop == row.num_tokens
    return PlanRow(
        row.request_id,
        row.slot,
        _kind(row, start),
        row.tokens(start, stop),
        start,
        stop,
        list(tables[row.request_id]),
        row.params if caught_up else None,
        row.num_output_tokens,
        n_top if caught_up else 0,
    )


def _kind(request: Request, start: int) -> SegmentKind:
    """Decode feeds the one token sampled last; anything else, recomputation too, is prefill."""
    return "decode" if request.output_token_ids and start == request.num_tokens - 1 else "prefill"


def count_tokens(schedule: Schedule, geometry: Geometry) -> TokenCounts:
    """The step's token positions by kind. Called before `update`: it reads what was computed before."""
    prompt = decode = recomputed = dead = 0
    for row in schedule.rows:
        if isinstance(row, HeldSlot):
            dead += 1
            continue
        start = row.num_computed_tokens
        stop = start + schedule.counts[row.request_id]
        again = max(0, min(stop, row.high_water) - start)
        new_prompt = max(0, min(stop, row.num_prompt_tokens) - (start + again))
        recomputed += again
        prompt += new_prompt
        decode += stop - start - again - new_prompt
    total = geometry.shape[0] * geometry.shape[1]
    return TokenCounts(prompt, decode, recomputed, dead, total - prompt - decode - recomputed - dead)


def segments_of(
    plan: Plan,
    geometry: Geometry,
    sampled: Sequence[SampledToken | None],
    prompt_lengths: dict[str, int],
) -> tuple[Segment, ...]:
    """The record's segments: plan rows, where they lay, and what was sampled after them."""
    segments = []
    for row, span, token in zip(plan.rows, geometry.spans, sampled, strict=True):
        left = 0
        if row.kind == "prefill":
            left = max(0, prompt_lengths[row.request_id] - (row.start_position + len(row.token_ids)))
        segments.append(
            Segment(
                row.request_id,
                row.slot,
                row.kind,
                span.row,
                span.q_start,
                span.q_len,
                span.kv_start,
                span.kv_len,
                span.position,
                tuple(row.token_ids),
                tuple(row.block_ids),
                left,
                token.token_id if token else None,
                token.logprob if token else None,
                tuple(token.top) if token else (),
            )
        )
    return tuple(segments)


def request_slot(request: Request, slot: int) -> SlotRecord:
    """A running request in its slot, as it stands now."""
    return SlotRecord(
        slot,
        request.request_id,
        held=False,
        num_computed_tokens=request.num_computed_tokens,
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.num_output_tokens,
        max_tokens=request.params.max_tokens,
    )


def held_slot(held: HeldSlot) -> SlotRecord:
    """A held slot, as it stands now."""
    request = held.request
    return SlotRecord(
        held.slot,
        request.request_id,
        held=True,
        num_computed_tokens=request.num_computed_tokens,
        num_prompt_tokens=request.num_prompt_tokens,
        num_output_tokens=request.num_output_tokens,
        max_tokens=request.params.max_tokens,
        held_steps=held.held_steps,
    )


def slots_now(scheduler: Scheduler) -> tuple[SlotRecord, ...]:
    """Occupied slots, by number."""
    running = [request_slot(r, r.slot) for r in scheduler.running if r.slot is not None]
    held = [held_slot(h) for h in scheduler.held.values()]
    return tuple(sorted([*running, *held], key=lambda s: s.slot))


def waiting_now(scheduler: Scheduler, blocked: str) -> tuple[WaitingRecord, ...]:
    """The first waiting requests and why each waits; `blocked` is the head's reason."""
    waiting = scheduler.waiting.first(WAITING_SHOWN)
    if not waiting:
        return ()
    head = waiting[0].request_id
    # Not fitting is the head's own trouble; everyone else waits behind it.
    own = blocked in ("token_budget", "kv_blocks")
    idle = max(0, scheduler.config.max_num_seqs - len(scheduler.running))
    return tuple(
        WaitingRecord(
            request.request_id,
            "behind" if own and place else blocked,
            head if own and place else "",
            idle,
            request.status is RequestStatus.PREEMPTED,
        )
        for place, request in enumerate(waiting)
    )


def blocked_now(scheduler: Scheduler, paused: bool) -> str:
    """Why the head of the queue would not enter if a step were scheduled now; what the last one found
    of its size stands until the next."""
    if not len(scheduler.waiting):
        return ""
    if not scheduler.mode.policy.admits(scheduler.running):
        return "draining" if scheduler.is_draining else "wave"
    if not scheduler.has_free_slot:
        return "no_free_slot"
    if scheduler.blocked in ("token_budget", "kv_blocks"):
        return scheduler.blocked
    return "paused" if paused else "next_step"


def admissions(schedule: Schedule) -> tuple[Admission, ...]:
    """Who entered in this step."""
    return tuple(Admission(r.request_id, slot, resumed) for r, slot, resumed in schedule.admitted)


def preemptions(schedule: Schedule) -> tuple[Preemption, ...]:
    """Who gave way in this step."""
    return tuple(Preemption(r.request_id, slot, lost) for r, slot, lost in schedule.preempted)


def releases(released: Iterable[tuple[Request, int]]) -> tuple[Release, ...]:
    """Slots that became free."""
    return tuple(Release(request.request_id, slot) for request, slot in released)
