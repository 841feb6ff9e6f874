"""The mechanism every policy shares: slots, KV blocks, the token budget and request states.

`schedule()` decides one step, `update()` takes its result in. Knows nothing of runners, records or
clocks. Running requests come first (decodes before part-fed prompts), then waiting ones; nobody is
admitted in a step that preempted (both rules are vLLM's).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.config import ConfigError, EngineConfig
from engine.request import Request, RequestStatus
from engine.scheduling.kv_cache import KVCacheManager
from engine.scheduling.layouts import largest_count, step_cost
from engine.scheduling.modes import Mode
from engine.scheduling.waiting import WaitingQueue
from engine.step.plan import Layout


@dataclass(slots=True)
class HeldSlot:
    """The slot of a finished request that static batching keeps until the wave ends; not a request.

    Each step it feeds its last token again at its last position: the full cost of a row, no growth. Its
    blocks stay frozen, unless a running request needs them (`has_blocks` False then).
    """

    request: Request
    slot: int
    held_steps: int = 0
    has_blocks: bool = True

    @property
    def token_id(self) -> int:
        position = self.request.num_computed_tokens
        return self.request.tokens(position, position + 1)[0]


@dataclass(slots=True)
class Schedule:
    """One step as decided, not yet run.

    Attributes:
        counts: tokens for each scheduled request, by request id.
        rows: scheduled requests and held slots in slot order.
        admitted: who entered, into which slot, and whether it resumes after a preemption.
        preempted: who gave way, its slot, and the computed tokens it lost.
        released: slots that became free before the step.
        blocked: why the head of the queue did not enter: '', no_free_slot, token_budget, kv_blocks, wave,
            draining.
    """

    layout: Layout
    counts: dict[str, int] = field(default_factory=dict)
    rows: list[Request | HeldSlot] = field(default_factory=list)
    admitted: list[tuple[Request, int, bool]] = field(default_factory=list)
    preempted: list[tuple[Request, int, int]] = field(default_factory=list)
    released: list[tuple[Request, int]] = field(default_factory=list)
    blocked: str = ""

    @property
    def row_counts(self) -> list[int]:
        return [1 if isinstance(row, HeldSlot) else self.counts[row.request_id] for row in self.rows]


@dataclass(slots=True)
class Outcome:
    """What a step or an abort ended: finished requests and freed slots."""

    finished: list[Request] = field(default_factory=list)
    released: list[tuple[Request, int]] = field(default_factory=list)
    barrier: bool = False


class Scheduler:
    """Holds every unfinished request of an engine and decides its steps.

    Args:
        config: limits; `configure` changes them between steps.
        mode: policy and layout; `set_mode` changes them between steps.
        eos_token_ids: tokens that end a request unless it ignores them.
    """

    def __init__(self, config: EngineConfig, mode: Mode, eos_token_ids: Iterable[int] = ()) -> None:
        self.config = config
        self.mode = mode
        self.eos_token_ids = frozenset(eos_token_ids)
        self.kv = KVCacheManager(config.num_blocks, config.block_size, config.max_num_seqs)
        self.waiting = WaitingQueue(mode.policy)
        #: In order of admission.
        self.running: list[Request] = []
        self.held: dict[int, HeldSlot] = {}
        #: A wave formed by switching to static: it must end before static starts one of its own.
        self.is_draining = False
        self.blocked = ""

    # -- requests in and out ------------------------------------------------------------------

    def can_ever_fit(self, request: Request) -> bool:
        """Whether the request could run alone in an empty engine; depends on nothing that changes."""
        return self._longest(request) - 1 <= self.config.num_kv_tokens and (
            request.num_prompt_tokens < self.config.max_model_len
        )

    def _longest(self, request: Request) -> int:
        return min(request.num_prompt_tokens + request.params.max_tokens, self.config.max_model_len)

    def add(self, request: Request) -> bool:
        """Enqueue; False, and the request is ignored, if it can never fit."""
        if not self.can_ever_fit(request):
            request.move_to(RequestStatus.FINISHED_IGNORED)
            return False
        self.waiting.add(request)
        return True

    def abort(self, request: Request) -> Outcome:
        """End a request at any moment. In a static wave its slot is held like any other's."""
        outcome = Outcome()
        if request.status is RequestStatus.RUNNING:
            self._retire(request, RequestStatus.FINISHED_ABORTED, outcome)
            self._end_wave(outcome)
        elif not request.status.is_finished:
            self.waiting.drop(request)
            request.move_to(RequestStatus.FINISHED_ABORTED)
            outcome.finished.append(request)
        return outcome

    def fail(self, requests: Sequence[Request]) -> Outcome:
        """End running requests in error and free what they hold, at once."""
        outcome = Outcome()
        for request in requests:
            self.running.remove(request)
            request.move_to(RequestStatus.FINISHED_ERROR)
            outcome.finished.append(request)
            self._free_slot(request, outcome.released)
        self._end_wave(outcome)
        return outcome

    def reset(self) -> Outcome:
        """The KV is gone (the model process died): running requests go back to the head and start over."""
        outcome = Outcome()
        for request in reversed(self.running):
            self._back_to_queue(request, outcome.released)
        self.running.clear()
        self._release_held(outcome.released)
        self.is_draining = False
        return outcome

    # -- settings -----------------------------------------------------------------------------

    def set_mode(self, mode: Mode) -> None:
        """Switch policy and layout; what runs goes on. To static, the running form the wave."""
        if mode.policy.holds_slots and not self.mode.policy.holds_slots:
            self.is_draining = bool(self.running)
        elif not mode.policy.holds_slots:
            self.is_draining = False
        self.mode = mode
        self.waiting.reorder(mode.policy)

    def configure(self, config: EngineConfig) -> None:
        """Change `max_num_seqs` and the budget. Fewer slots than running requests: the surplus drains.

        Raises:
            ConfigError: blocks or lengths differ; those are fixed for an engine's life.
        """
        fixed = ("block_size", "num_blocks", "max_model_len")
        if any(getattr(config, name) != getattr(self.config, name) for name in fixed):
            raise ConfigError("block_size, num_blocks and max_model_len cannot change while running")
        self.config = config

    @property
    def num_rows(self) -> int:
        """Slots in use, held ones too."""
        return len(self.running) + len(self.held)

    @property
    def has_free_slot(self) -> bool:
        """Whether one more request could hold a slot; held ones count unless the mode frees them."""
        held = len(self.held) if self.mode.policy.holds_slots else 0
        return len(self.running) + held < self.config.max_num_seqs

    @property
    def is_empty(self) -> bool:
        return not self.running and not len(self.waiting)

    # -- one step -----------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Decide a step. Nothing runs; blocks are allocated and requests admitted."""
        schedule = Schedule(self.mode.layout)
        if not self.mode.policy.holds_slots:
            self._release_held(schedule.released)
        self._schedule_running(schedule)
        if schedule.preempted:
            schedule.blocked = "kv_blocks"
        else:
            self._admit(schedule)
        self.blocked = schedule.blocked
        rows: list[Request | HeldSlot] = [r for r in self.running if r.request_id in schedule.counts]
        # Held slots are dead weight beside useful rows; alone they would be a step for nobody.
        rows = sorted([*rows, *self.held.values()], key=_slot_of) if rows else []
        schedule.rows = rows
        cost = step_cost(schedule.layout, schedule.row_counts)
        assert cost <= self.config.max_num_batched_tokens, f"step of {cost} exceeds the budget"
        return schedule

    def update(self, schedule: Schedule, sampled: dict[str, int]) -> Outcome:
        """Take a step's result in: tokens computed, tokens sampled (by request id), ends.

        A request that was aborted while the step ran is skipped: no token follows its end.
        """
        outcome = Outcome()
        for row in schedule.rows:
            if isinstance(row, HeldSlot):
                row.held_steps += 1
            elif row.status is RequestStatus.RUNNING:
                row.num_computed_tokens += schedule.counts[row.request_id]
                row.high_water = max(row.high_water, row.num_computed_tokens)
                if row.request_id in sampled:
                    self._append(row, sampled[row.request_id], outcome)
        self._end_wave(outcome)
        return outcome

    def _append(self, request: Request, token_id: int, outcome: Outcome) -> None:
        if request.num_pending_tokens:
            raise RuntimeError(f"{request} was sampled before it caught up")
        request.output_token_ids.append(token_id)
        status = self._check_stop(request)
        if status is not None:
            self._retire(request, status, outcome)

    def _check_stop(self, request: Request) -> RequestStatus | None:
        """End-of-sequence, stop ids, then length (the order is vLLM's)."""
        params, token_id = request.params, request.output_token_ids[-1]
        if token_id in self.eos_token_ids and not params.ignore_eos:
            return RequestStatus.FINISHED_STOPPED
        if token_id in params.stop_token_ids:
            return RequestStatus.FINISHED_STOPPED
        if request.num_tokens >= self._longest(request):
            return RequestStatus.FINISHED_LENGTH_CAPPED
        return None

    # -- running ------------------------------------------------------------------------------

    def _schedule_running(self, schedule: Schedule) -> None:
        # Decodes first: they need one position each and every one of them fits (budget >= rows).
        for request in sorted(self.running, key=lambda r: r.num_pending_tokens > 1):
            if request.status is not RequestStatus.RUNNING:
                continue  # preempted for one before it
            count = self._chunk(request, schedule)
            if count and self._make_room(request, count, schedule):
                schedule.counts[request.request_id] = count

    def _chunk(self, request: Request, schedule: Schedule) -> int:
        budget = self.config.max_num_batched_tokens
        counts = schedule.counts.values()
        num_rows = len(counts) + len(self.held)
        remaining = largest_count(
            schedule.layout,
            num_rows,
            sum(counts) + len(self.held),
            max(counts, default=1 if self.held else 0),
            budget,
        )
        if not remaining:
            return 0
        count = self.mode.policy.chunk(request, remaining, budget)
        assert 0 <= count <= min(remaining, request.num_pending_tokens), f"{self.mode.name}: {count}"
        return count

    def _make_room(self, request: Request, count: int, schedule: Schedule) -> bool:
        """Allocate a running request's blocks, taking them from held slots, then from the policy's victim."""
        assert request.slot is not None
        wanted = request.num_computed_tokens + count
        while not self.kv.allocate_slots(request.request_id, request.slot, wanted):
            if self._take_held_blocks():
                continue
            victim = self.mode.policy.victim(self.running)
            self._preempt(victim, schedule)
            if victim is request:
                return False
        return True

    def _take_held_blocks(self) -> bool:
        for held in self.held.values():
            if held.has_blocks:
                self.kv.free(held.request.request_id)
                held.has_blocks = False
                return True
        return False

    def _preempt(self, request: Request, schedule: Schedule) -> None:
        assert request.slot is not None
        schedule.preempted.append((request, request.slot, request.num_computed_tokens))
        schedule.counts.pop(request.request_id, None)
        self.running.remove(request)
        request.num_preemptions += 1
        self._back_to_queue(request, schedule.released)

    def _back_to_queue(self, request: Request, released: list[tuple[Request, int]]) -> None:
        request.move_to(RequestStatus.PREEMPTED)
        request.num_computed_tokens = 0
        self._free_slot(request, released)
        self.waiting.add_preempted(request)

    # -- admission ----------------------------------------------------------------------------

    def _admit(self, schedule: Schedule) -> None:
        may_enter = self.mode.policy.admits(self.running)
        while (request := self.waiting.peek()) is not None:
            if not may_enter:
                schedule.blocked = "draining" if self.is_draining else "wave"
                return
            slot = self._free_slot_number()
            if slot is None:
                schedule.blocked = "no_free_slot"
                return
            count = self._chunk(request, schedule)
            if not count:
                schedule.blocked = "token_budget"
                return
            if not self.kv.allocate_slots(request.request_id, slot, count):
                schedule.blocked = "kv_blocks"
                return
            self._enter(self.waiting.pop(), slot, count, schedule)

    def _enter(self, request: Request, slot: int, count: int, schedule: Schedule) -> None:
        resumed = request.status is RequestStatus.PREEMPTED
        request.move_to(RequestStatus.RUNNING)
        request.slot = slot
        self.running.append(request)
        schedule.counts[request.request_id] = count
        schedule.admitted.append((request, slot, resumed))

    def _free_slot_number(self) -> int | None:
        if self.num_rows >= self.config.max_num_seqs:
            return None
        taken = {request.slot for request in self.running} | set(self.held)
        return next((s for s in range(self.config.max_num_seqs) if s not in taken), None)

    # -- ends ---------------------------------------------------------------------------------

    def _retire(self, request: Request, status: RequestStatus, outcome: Outcome) -> None:
        self.running.remove(request)
        request.move_to(status)
        outcome.finished.append(request)
        if self.mode.policy.holds_slots:
            assert request.slot is not None
            self.held[request.slot] = HeldSlot(request, request.slot)
        else:
            self._free_slot(request, outcome.released)

    def _end_wave(self, outcome: Outcome) -> None:
        if self.mode.policy.holds_slots and not self.running and (self.held or outcome.released):
            self._release_held(outcome.released)
            self.is_draining = False
            outcome.barrier = True

    def _release_held(self, released: list[tuple[Request, int]]) -> None:
        for held in sorted(self.held.values(), key=_slot_of):
            self._free_slot(held.request, released)
        self.held.clear()

    def _free_slot(self, request: Request, released: list[tuple[Request, int]]) -> None:
        assert request.slot is not None
        self.kv.free(request.request_id)
        released.append((request, request.slot))
        request.slot = None


def _slot_of(row: Request | HeldSlot) -> int:
    assert row.slot is not None
    return row.slot
