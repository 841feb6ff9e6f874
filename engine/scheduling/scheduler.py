"""The mechanism every mode and policy shares: slots, KV blocks, the token budget and request states.

`schedule()` decides one step, `update()` takes its result in. Knows nothing of runners, records or
clocks. Running requests come first (decodes before part-fed prompts), then waiting ones; nobody is
admitted in a step that preempted (both rules are vLLM's).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.config import ConfigError, EngineConfig
from engine.request import Request, RequestStatus
from engine.scheduling.kv_cache import KVCacheManager
from engine.scheduling.layouts import largest_count, step_cost
from engine.scheduling.modes import Mode
from engine.scheduling.policies import FIRST_COME, PolicyFault, policy_named, victim_of
from engine.scheduling.schedule import Entered, GaveWay, HeldSlot, Outcome, Schedule
from engine.scheduling.stopping import StopCheck
from engine.scheduling.waiting import WaitingQueue


class Scheduler:
    """Holds every unfinished request of an engine and decides its steps.

    Args:
        config: limits and policy; `configure` changes them between steps.
        mode: way to batch and layout; `set_mode` changes them between steps.
        stops: says whether a request's newest token ends it.

    Raises:
        ValueError: there is no policy of that name.
    """

    def __init__(self, config: EngineConfig, mode: Mode, stops: StopCheck) -> None:
        self.config = config
        self.mode = mode
        self.policy = policy_named(config.policy)
        self.kv = KVCacheManager(
            config.num_blocks,
            config.block_size,
            config.max_num_seqs,
            prefix_caching=config.prefix_caching,
        )
        self.waiting = WaitingQueue(self.policy)
        #: In order of admission.
        self.running: list[Request] = []
        self.held: dict[int, HeldSlot] = {}
        #: A wave formed by switching to static: it must end before static starts one of its own.
        self.is_draining = False
        self.blocked = ""
        #: Why a policy was given up, a sentence each, until somebody has taken note.
        self.policy_faults: list[str] = []
        self._stops = stops
        self._preempts_surplus = False

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
        try:
            self.waiting.add(request)
        except PolicyFault as fault:
            self._give_up_policy(fault)
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

    def fail_spoilt(self, request: Request, schedule: Schedule) -> Outcome:
        """End a running request whose KV means nothing; those that share a block with it start over."""
        blocks = self.kv.spoilt(request.request_id)
        for other in [one for one in self.running if one is not request]:
            if blocks.intersection(self.kv.tables.get(other.request_id, ())):
                self._preempt(other, schedule, "kv_blocks")
        return self.fail([request])

    def reset(self) -> Outcome:
        """The KV is gone (the model process died): running requests go back to the head and start over."""
        outcome = Outcome()
        for request in reversed(self.running):
            self._back_to_queue(request, outcome.released)
        self.running.clear()
        self._release_held(outcome.released)
        self.kv.clear_index()
        self.is_draining = False
        return outcome

    # -- settings -----------------------------------------------------------------------------

    def set_mode(self, mode: Mode) -> None:
        """Switch way to batch and layout; what runs goes on. To static, the running form the wave."""
        if mode.batching.holds_slots and not self.mode.batching.holds_slots:
            self.is_draining = bool(self.running)
        elif not mode.batching.holds_slots:
            self.is_draining = False
        self.mode = mode

    def configure(self, config: EngineConfig, *, preempt_surplus: bool = False) -> None:
        """Change slots, budget, policy and prefix caching.

        Args:
            preempt_surplus: fewer slots than running requests: the next step preempts the surplus, which
                otherwise goes on to its end.

        Raises:
            ConfigError: blocks or lengths differ; those are fixed for an engine's life.
            ValueError: there is no policy of that name.
        """
        fixed = ("block_size", "num_blocks", "max_model_len")
        if any(getattr(config, name) != getattr(self.config, name) for name in fixed):
            raise ConfigError("block_size, num_blocks and max_model_len cannot change while running")
        policy = policy_named(config.policy)
        self.config = config
        if policy is not self.policy:
            try:
                self.waiting.reorder(policy)
                self.policy = policy
            except PolicyFault as fault:
                self._give_up_policy(fault)
        if config.prefix_caching != self.kv.prefix_caching:
            self.kv.set_prefix_caching(config.prefix_caching)
        self.kv.set_num_slots(config.max_num_seqs)
        self._preempts_surplus |= preempt_surplus

    def _give_up_policy(self, fault: PolicyFault) -> None:
        """First come, first served from now on: nobody ends because of a wrong order."""
        self.policy_faults.append(f"{fault}; from now on: {FIRST_COME.summary}")
        self.policy = FIRST_COME
        self.config = msgspec.structs.replace(self.config, policy=FIRST_COME.name)
        self.waiting.reorder(FIRST_COME)

    def _victim(self) -> Request:
        try:
            return victim_of(self.policy, self.running)
        except PolicyFault as fault:
            self._give_up_policy(fault)
            return victim_of(self.policy, self.running)

    @property
    def num_rows(self) -> int:
        """Slots in use, held ones too."""
        return len(self.running) + len(self.held)

    @property
    def has_free_slot(self) -> bool:
        """Whether one more request could hold a slot; held ones count unless the mode frees them."""
        held = len(self.held) if self.mode.batching.holds_slots else 0
        return len(self.running) + held < self.config.max_num_seqs

    @property
    def is_empty(self) -> bool:
        return not self.running and not len(self.waiting)

    # -- one step -----------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Decide a step. Nothing runs; blocks are allocated and requests admitted."""
        schedule = Schedule(self.mode.layout)
        if not self.mode.batching.holds_slots:
            self._release_held(schedule.released)
        if self._preempts_surplus:
            self._preempt_surplus(schedule)
        # Held slots are dead weight beside useful rows.
        schedule.num_rows = schedule.num_tokens = len(self.held)
        schedule.longest = 1 if self.held else 0
        self._schedule_running(schedule)
        if schedule.preempted:
            schedule.blocked = "kv_blocks" if schedule.preempted[-1].reason == "kv_blocks" else "no_free_slot"
        else:
            self._admit(schedule)
        self.blocked = schedule.blocked
        rows: list[Request | HeldSlot] = [r for r in self.running if r.request_id in schedule.counts]
        # Alone they would be a step for nobody.
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
                self.kv.commit(row)
                if row.request_id in sampled:
                    self._append(row, sampled[row.request_id], outcome)
        self._end_wave(outcome)
        return outcome

    def _append(self, request: Request, token_id: int, outcome: Outcome) -> None:
        if request.num_pending_tokens:
            raise RuntimeError(f"{request} was sampled before it caught up")
        request.output_token_ids.append(token_id)
        status = self._stops(request, self._longest(request))
        if status is not None:
            self._retire(request, status, outcome)

    # -- running ------------------------------------------------------------------------------

    def _schedule_running(self, schedule: Schedule) -> None:
        # Decodes first: they need one position each and every one of them fits (budget >= rows).
        for request in sorted(self.running, key=lambda r: r.num_pending_tokens > 1):
            if request.status is not RequestStatus.RUNNING:
                continue  # preempted for one before it
            count = self._chunk(request, schedule)
            if count and self._make_room(request, count, schedule):
                schedule.add(request.request_id, count)

    def _chunk(self, request: Request, schedule: Schedule) -> int:
        budget = self.config.max_num_batched_tokens
        remaining = largest_count(
            schedule.layout, schedule.num_rows, schedule.num_tokens, schedule.longest, budget
        )
        if not remaining:
            return 0
        count = self.mode.batching.chunk(request, remaining, budget)
        assert 0 <= count <= min(remaining, request.num_pending_tokens), f"{self.mode.name}: {count}"
        return count

    def _make_room(self, request: Request, count: int, schedule: Schedule) -> bool:
        """Allocate a running request's blocks, taking them from held slots, then from the policy's victim."""
        assert request.slot is not None
        wanted = request.num_computed_tokens + count
        while not self.kv.allocate_slots(request.request_id, request.slot, wanted):
            if self._take_held_blocks():
                continue
            victim = self._victim()
            self._preempt(victim, schedule, "kv_blocks")
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

    def _preempt_surplus(self, schedule: Schedule) -> None:
        self._preempts_surplus = False
        while len(self.running) > self.config.max_num_seqs:
            self._preempt(self._victim(), schedule, "slots")

    def _preempt(self, request: Request, schedule: Schedule, reason: str) -> None:
        assert request.slot is not None
        schedule.preempted.append(GaveWay(request, request.slot, request.num_computed_tokens, reason))
        schedule.drop(request.request_id)
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
        may_enter = self.mode.batching.admits(self.running)
        while (request := self.waiting.peek()) is not None:
            if not may_enter:
                schedule.blocked = "draining" if self.is_draining else "wave"
                return
            slot = self._free_slot_number()
            if slot is None:
                schedule.blocked = "no_free_slot"
                return
            schedule.blocked = self._enter(request, slot, schedule)
            if schedule.blocked:
                return

    def _enter(self, request: Request, slot: int, schedule: Schedule) -> str:
        """Admit the head of the queue, or say what it lacks and change nothing."""
        cached = self.kv.cached_prefix(request)
        request.num_computed_tokens = len(cached) * self.config.block_size
        count = self._chunk(request, schedule)
        fits = count and self.kv.allocate_slots(
            request.request_id, slot, request.num_computed_tokens + count, cached
        )
        if not fits:
            request.num_computed_tokens = 0
            return "kv_blocks" if count else "token_budget"
        self.waiting.pop()
        entered = Entered(
            request, slot, request.status is RequestStatus.PREEMPTED, request.num_computed_tokens
        )
        request.move_to(RequestStatus.RUNNING)
        request.slot = slot
        self.running.append(request)
        schedule.add(request.request_id, count)
        schedule.admitted.append(entered)
        return ""

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
        if self.mode.batching.holds_slots:
            assert request.slot is not None
            self.held[request.slot] = HeldSlot(request, request.slot)
        else:
            self._free_slot(request, outcome.released)

    def _end_wave(self, outcome: Outcome) -> None:
        if self.mode.batching.holds_slots and not self.running and (self.held or outcome.released):
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
