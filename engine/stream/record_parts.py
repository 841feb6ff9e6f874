"""The parts of a record, each from the scheduler's mutable world to an immutable struct.

Pure functions; `recorder.py` decides what goes into which record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.config import EngineConfig
from engine.request import Request, RequestStatus
from engine.scheduling.block_pool import BlockPool
from engine.scheduling.schedule import HeldSlot, Schedule
from engine.scheduling.scheduler import Scheduler
from engine.step.geometry import Geometry
from engine.step.plan import Plan, SampledToken
from engine.stream.pending import BlockMoves
from engine.stream.records import (
    WAITING_SHOWN,
    Admission,
    Preemption,
    Release,
    RequestRecord,
    Segment,
    SlotRecord,
    TokenCounts,
    WaitingRecord,
)


def request_record(request: Request, prompt_text: str, label: str, num_template_tokens: int) -> RequestRecord:
    """What was asked."""
    params = request.params
    return RequestRecord(
        request.request_id,
        request.index,
        tuple(request.prompt_token_ids),
        prompt_text,
        params.max_tokens,
        request.arrival_s,
        params.temperature,
        params.seed,
        params.ignore_eos,
        params.stop_token_ids,
        num_template_tokens,
        label,
        params.top_k,
        params.top_p,
        params.stop,
        params.n_logprobs,
        request.priority,
    )


def why_ignored(request: Request, config: EngineConfig) -> str:
    """Why a request can never run, in a sentence."""
    if request.num_prompt_tokens >= config.max_model_len:
        return (
            f"the prompt has {request.num_prompt_tokens} tokens; with one output token it would exceed "
            f"max_model_len {config.max_model_len}"
        )
    return (
        f"{request.num_prompt_tokens} prompt + {request.params.max_tokens} output tokens can never fit "
        f"the KV cache of {config.num_kv_tokens} tokens"
    )


def block_moves(pool: BlockPool, before: BlockMoves) -> tuple[BlockMoves, BlockMoves]:
    """What happened to KV blocks since the counters stood at `before`, and how they stand now."""
    now = BlockMoves(pool.num_allocated, pool.num_freed, pool.num_shared, pool.num_evicted)
    return BlockMoves(*(a - b for a, b in zip(now, before, strict=True))), now


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


def _request_slot(request: Request, slot: int) -> SlotRecord:
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


def _held_slot(held: HeldSlot) -> SlotRecord:
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
    running = [_request_slot(r, r.slot) for r in scheduler.running if r.slot is not None]
    held = [_held_slot(h) for h in scheduler.held.values()]
    return tuple(sorted([*running, *held], key=lambda s: s.slot))


def slots_of_step(
    scheduler: Scheduler, schedule: Schedule, slots: Mapping[str, int]
) -> tuple[SlotRecord, ...]:
    """Who was in which slot during a step: those still there, and those that ended in it.

    Args:
        slots: each scheduled row's, by request id.
    """
    fed = [
        _held_slot(row) if isinstance(row, HeldSlot) else _request_slot(row, slots[row.request_id])
        for row in schedule.rows
    ]
    present = {slot.slot for slot in fed}
    fed += [slot for slot in slots_now(scheduler) if slot.slot not in present]
    return tuple(sorted(fed, key=lambda slot: slot.slot))


def num_kv_tokens(scheduler: Scheduler) -> int:
    """Tokens whose KV is stored, frozen ones of held slots included, shared ones once."""
    running = sum(request.num_computed_tokens for request in scheduler.running)
    held = sum(one.request.num_computed_tokens for one in scheduler.held.values() if one.has_blocks)
    return running + held - scheduler.kv.pool.num_extra_holders * scheduler.config.block_size


def waiting_now(scheduler: Scheduler, blocked: str) -> tuple[WaitingRecord, ...]:
    """The first waiting requests and why each waits; `blocked` is the head's reason."""
    waiting = scheduler.waiting.first(WAITING_SHOWN)
    if not waiting:
        return ()
    head = waiting[0].request_id
    # Not fitting is the head's own trouble; everyone else waits behind it.
    own = blocked in ("token_budget", "kv_blocks")
    idle = max(0, scheduler.config.max_num_seqs - len(scheduler.running))
    free = idle - len(scheduler.held)
    # Nothing but the next step keeps the first of them out; the others find no slot left.
    enters_next = blocked in ("paused", "next_step")
    return tuple(
        WaitingRecord(
            request.request_id,
            "behind" if own and place else "no_free_slot" if enters_next and place >= free else blocked,
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
    if not scheduler.mode.batching.admits(scheduler.running):
        return "draining" if scheduler.is_draining else "wave"
    if not scheduler.has_free_slot:
        return "no_free_slot"
    if scheduler.blocked in ("token_budget", "kv_blocks"):
        return scheduler.blocked
    return "paused" if paused else "next_step"


def admissions(schedule: Schedule) -> tuple[Admission, ...]:
    """Who entered in this step."""
    return tuple(
        Admission(one.request.request_id, one.slot, one.resumed, one.num_cached_tokens)
        for one in schedule.admitted
    )


def preemptions(schedule: Schedule) -> tuple[Preemption, ...]:
    """Who gave way in this step."""
    return tuple(
        Preemption(one.request.request_id, one.slot, one.lost_tokens, one.reason)
        for one in schedule.preempted
    )


def releases(released: Iterable[tuple[Request, int]]) -> tuple[Release, ...]:
    """Slots that became free."""
    return tuple(Release(request.request_id, slot) for request, slot in released)
