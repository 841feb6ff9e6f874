"""The engine: requests in, steps out, one record each. No threads, no queue, no screen.

    apply commands -> schedule -> plan -> model: tensors, one call, sample -> aborts -> update -> record

`EngineLoop` drives it from a command queue; library users, tests and headless commands call it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from engine.clock import EngineClock
from engine.config import SLOT_LIMIT, EngineConfig
from engine.request import Request, RequestStatus, SamplingParams
from engine.runner import ForwardError, ModelInfo, ModelRunner, RunnerDied
from engine.scheduling.kv_cache import KVCacheManager
from engine.scheduling.modes import mode_named
from engine.scheduling.planning import plan_rows
from engine.scheduling.schedule import HeldSlot, Outcome, Schedule
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.stopping import StopCheck
from engine.step.geometry import ArenaShape, lay_out
from engine.step.plan import Plan, Reply, SampledToken
from engine.stream.pending import BlockMoves, PendingEvents
from engine.stream.recording import (
    admissions,
    block_moves,
    count_tokens,
    held_slot,
    preemptions,
    releases,
    request_record,
    request_slot,
    segments_of,
    slots_now,
    waiting_now,
    why_ignored,
)
from engine.stream.records import (
    CACHED_RUNS_EVERY,
    QuietRecord,
    Release,
    SlotRecord,
    StepRecord,
    Verification,
)

#: What `configure` changes.
LIVE_SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "policy", "prefix_caching")


def request_id_of(index: int) -> str:
    """The id of the request with that arrival number."""
    return f"r{index}"


class StepLost(RunnerDied):
    """The runner died in a step; `record` is that step's, its requests ended in error."""

    def __init__(self, record: StepRecord, cause: RunnerDied) -> None:
        super().__init__(str(cause))
        self.record = record


class Engine:
    """A continuous-batching engine over a runner whose model is loaded.

    Args:
        config: limits and the first mode.
        runner: runs the plans; its arena `arena_id` is opened here.
        info: of the loaded model; `max_model_len` is cut to the model's.
        clock: engine clock.
        token_bytes: a token id's bytes, for the records; None leaves them out.
        n_top: likeliest tokens to record beside each sampled one.
        arena_id: which arena of the runner is this engine's.
        epoch: which start of the runner this is.
        first_index: arrival number of the first request, when some arrived before the model did.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner,
        info: ModelInfo,
        *,
        clock: EngineClock | None = None,
        token_bytes: Callable[[int], bytes] | None = None,
        n_top: int = 0,
        arena_id: int = 0,
        epoch: int = 1,
        first_index: int = 0,
    ) -> None:
        length = min(config.max_model_len, info.max_model_len)
        config = msgspec.structs.replace(config, max_model_len=length)
        self.runner = runner
        self.info = info
        self.clock = clock or EngineClock()
        self.n_top = n_top
        self.arena_id = arena_id
        self.epoch = epoch
        self.step_number = 0
        self.requests: dict[str, Request] = {}
        self.arena = ArenaShape(config.num_blocks, config.block_size, SLOT_LIMIT)
        self.scheduler = Scheduler(
            config, mode_named(config.mode), StopCheck(info.eos_token_ids, token_bytes)
        )
        self._mode_name = config.mode
        self._pending = PendingEvents(token_bytes)
        self.token_bytes = token_bytes
        self._num_requests = first_index
        self._seen_blocks = BlockMoves()
        self._said_cached = -1
        runner.open_arena(arena_id, self.arena)

    # -- between steps ------------------------------------------------------------------------

    @property
    def config(self) -> EngineConfig:
        """The limits in force; `config.mode` is the first mode, `mode` the one now."""
        return self.scheduler.config

    @property
    def mode(self) -> str:
        """One of `MODES`, by name: how the next step is batched."""
        return self._mode_name

    @property
    def kv(self) -> KVCacheManager:
        """Who owns which KV block."""
        return self.scheduler.kv

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return not self.scheduler.is_empty

    def take_index(self) -> int:
        """The next arrival number; a request that is refused later leaves a gap."""
        index = self._num_requests
        self._num_requests += 1
        return index

    def add_request(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        prompt_text: str = "",
        label: str = "",
        num_template_tokens: int = 0,
        priority: int = 0,
        arrival_s: float | None = None,
        index: int | None = None,
    ) -> str:
        """Enqueue a request and return its id. One that can never fit ends at once as `ignored`.

        Args:
            priority: lower enters earlier, where the policy looks at it.
            arrival_s: on the engine clock; None is now.
            index: an arrival number from `take_index`, for a request that arrived before its ids did.

        Raises:
            ValueError: the prompt has no tokens, or one the model does not know; or there are stop strings
                and no `token_bytes` to look for them in.
        """
        if not prompt_token_ids:
            raise ValueError("a prompt needs at least one token")
        if (
            self.info.vocab_size
            and not 0 <= min(prompt_token_ids) <= max(prompt_token_ids) < self.info.vocab_size
        ):
            raise ValueError(f"token ids must be from 0 to {self.info.vocab_size - 1}")
        if params.stop and self.token_bytes is None:
            raise ValueError(
                "stop strings need the text of tokens, which this model's tokenizer does not give"
            )
        index = self.take_index() if index is None else index
        arrival = self.clock.now() if arrival_s is None else arrival_s
        request = Request(
            request_id_of(index), index, list(prompt_token_ids), params, arrival, priority, self.step_number
        )
        self._pending.submitted(request_record(request, prompt_text, label, num_template_tokens))
        self.requests[request.request_id] = request  # first: whatever breaks, it is known to be there
        before = self.config
        fits = self.scheduler.add(request)
        self._note_policy(before)
        if not fits:
            del self.requests[request.request_id]
            self._pending.finished(request, None, self.clock.now(), why_ignored(request, self.config))
        return request.request_id

    def abort_request(self, request_id: str) -> bool:
        """End a request now; False if it has ended already or is unknown."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        slot = request.slot
        self._note(self.scheduler.abort(request), {request_id: slot})
        return True

    def set_mode(self, name: str) -> None:
        """Switch mode from the next step on.

        Raises:
            ValueError: no such mode.
        """
        mode = mode_named(name)
        if name == self._mode_name:
            return
        self._pending.changed("mode", self._mode_name, name)
        self._mode_name = name
        self.scheduler.set_mode(mode)

    def configure(self, config: EngineConfig, *, preempt_surplus: bool = False) -> None:
        """Change settings from the next step on; the mode is `set_mode`'s.

        Args:
            preempt_surplus: with fewer slots than running requests, preempt the surplus.

        Raises:
            ConfigError: a limit that is fixed for the engine's life differs.
            ValueError: there is no policy of that name.
        """
        before = self.config
        self.scheduler.configure(config, preempt_surplus=preempt_surplus)
        for name in LIVE_SETTINGS:
            if getattr(before, name) != getattr(config, name):
                self._pending.changed(name, str(getattr(before, name)), str(getattr(config, name)))
        self._note_policy(config)

    def reset(self, epoch: int, reason: str) -> None:
        """The model process is new: open the arena again; running requests start over from the head.

        Tokens already produced stay; they are recomputed and continued as if nothing had happened.
        """
        self.epoch = epoch
        self._note(self.scheduler.reset(), {})
        self._pending.error(reason)
        self.runner.open_arena(self.arena_id, self.arena)

    def _note_policy(self, before: EngineConfig) -> None:
        """Say that a policy was given up, where that has happened."""
        faults = self.scheduler.policy_faults
        for fault in faults:
            self._pending.error(fault)
        if faults and before.policy != self.config.policy:
            self._pending.changed("policy", before.policy, self.config.policy)
        faults.clear()

    def note_verified(self, verification: Verification) -> None:
        """A finished request was checked alone: the next record says so."""
        self._pending.verified(verification)

    def write_off(self, cause: str) -> QuietRecord:
        """After a fault of its own: end every request in error. It must not be asked for anything after.

        Touches as little as possible of what may be broken: `successor` gives an engine that is whole.
        """
        releases = []
        for request in self.requests.values():
            request.status = RequestStatus.FINISHED_ERROR
            if request.slot is not None:
                releases.append(Release(request.request_id, request.slot))
            self._pending.finished(request, request.slot, self.clock.now(), cause)
        releases += [Release(held.request.request_id, slot) for slot, held in self.scheduler.held.items()]
        self._pending.released(releases, barrier=False)
        self._pending.error(cause)
        return QuietRecord(self.step_number, self.clock.now(), self._pending.take())

    def successor(self) -> Engine:
        """An empty engine in this one's place: the same settings, arena and clock; numbers go on.

        Raises:
            RunnerError: the arena cannot be opened.
        """
        return self.successor_on(self.info, self.token_bytes, self.epoch)

    def successor_on(self, info: ModelInfo, token_bytes: Callable[[int], bytes] | None, epoch: int) -> Engine:
        """The same on another model.

        Raises:
            RunnerError: the arena cannot be opened.
        """
        engine = Engine(
            msgspec.structs.replace(self.config, mode=self._mode_name),
            self.runner,
            info,
            clock=self.clock,
            token_bytes=token_bytes,
            n_top=self.n_top,
            arena_id=self.arena_id,
            epoch=epoch,
            first_index=self._num_requests,
        )
        engine.step_number = self.step_number
        return engine

    # -- one step -----------------------------------------------------------------------------

    def step(self, aborts: Callable[[], Iterable[str]] = tuple) -> StepRecord | None:
        """Schedule, run and record one step; None when there is nothing to do.

        Args:
            aborts: asked once the forward has ended: request ids cancelled meanwhile.

        Raises:
            StepLost: the runner died; the requests of the step have ended in error, and the exception
                carries the step's record.
        """
        self.clock.start()
        try:
            return self._step(aborts)
        finally:
            self.clock.stop()

    def _step(self, aborts: Callable[[], Iterable[str]]) -> StepRecord | None:
        start_s = self.clock.now()
        before = self.clock.source()
        config = self.config
        schedule = self.scheduler.schedule()
        self._note_policy(config)
        if not schedule.rows:
            return None
        rows = plan_rows(schedule, self.kv.tables, self.n_top)
        step = self.step_number + 1
        plan = Plan(self.epoch, self.arena_id, step, self.scheduler.mode.layout, rows)
        schedule_s = self.clock.source() - before
        died: RunnerDied | None = None
        error = ""
        reply: Reply | None = None
        try:
            reply = self.runner.run(plan)
        except ForwardError as exc:
            error = str(exc)
        except RunnerDied as exc:
            died, error = exc, str(exc)
        self.step_number = step
        for request_id in aborts():
            self.abort_request(request_id)
        record = self._take_in(schedule, plan, reply, error, start_s, schedule_s)
        if died is not None:
            raise StepLost(record, died) from died
        return record

    def _take_in(
        self,
        schedule: Schedule,
        plan: Plan,
        reply: Reply | None,
        error: str,
        start_s: float,
        schedule_s: float,
    ) -> StepRecord:
        geometry = lay_out(plan, self.arena)
        tokens = count_tokens(schedule, geometry)
        slots_before = {row.request_id: row.slot for row in plan.rows}
        draining = len(self.scheduler.running) if self.scheduler.is_draining else 0
        waiting = waiting_now(self.scheduler, schedule.blocked)
        waiting_count = len(self.scheduler.waiting)
        lengths = {row.request_id: row.num_prompt_tokens for row in schedule.rows if isinstance(row, Request)}
        if reply is None:
            sampled: list[SampledToken | None] = [None] * len(plan.rows)
            alive = [r for r in schedule.rows if isinstance(r, Request) and r.status is RequestStatus.RUNNING]
            outcome = self.scheduler.fail(alive)
        else:
            sampled = list(reply.sampled)
            self._end_faulty(plan, schedule, reply, slots_before)
            for place, row in enumerate(schedule.rows):
                if isinstance(row, Request) and row.status is not RequestStatus.RUNNING:
                    sampled[place] = None  # aborted while the forward ran: no token follows
            chosen = {
                row.request_id: token.token_id
                for row, token in zip(plan.rows, sampled, strict=True)
                if token is not None
            }
            outcome = self.scheduler.update(schedule, chosen)
        slots = self._slots_of_step(schedule, slots_before)
        end_s = self.clock.now()
        self._note(outcome, slots_before, end_s, error)
        if error:
            self._pending.error(error)
        events = self._pending.take(
            admitted=admissions(schedule),
            preempted=preemptions(schedule),
            released_before=releases(schedule.released),
            sampled=[i for token in sampled if token for i in (token.token_id, *(t for t, _ in token.top))],
            blocks=self._blocks_moved(),
        )
        return StepRecord(
            step=plan.step,
            epoch=self.epoch,
            mode=self._mode_name,
            policy=self.scheduler.policy.name,
            layout=plan.layout,
            start_s=start_s,
            end_s=end_s,
            shape=geometry.shape,
            num_keys=geometry.num_keys,
            tokens=tokens,
            max_num_batched_tokens=self.config.max_num_batched_tokens,
            max_num_seqs=self.config.max_num_seqs,
            segments=segments_of(plan, geometry, sampled, lengths),
            slots=slots,
            waiting_count=waiting_count,
            waiting=waiting,
            free_blocks=self.kv.pool.num_free,
            num_blocks=self.kv.pool.num_blocks,
            kv_tokens=self.num_kv_tokens,
            events=events,
            draining=draining,
            schedule_s=schedule_s,
            forward_s=reply.forward_s if reply else 0.0,
            sample_s=reply.sample_s if reply else 0.0,
            failed=reply is None,
            cached_blocks=self.kv.pool.num_cached,
            cached_runs=self._cached_runs(plan.step, has_entered=bool(schedule.admitted)),
        )

    def _end_faulty(
        self, plan: Plan, schedule: Schedule, reply: Reply, slots: Mapping[str, int | None]
    ) -> None:
        """End the requests whose rows failed in a step that did not."""
        causes = {plan.rows[place].request_id: cause for place, cause in reply.faults.items()}
        # In order of admission: who shares another's spoilt blocks entered after it, and starts over.
        for request in list(self.scheduler.running):
            cause = causes.get(request.request_id, "")
            if cause and request.status is RequestStatus.RUNNING:
                self._note(self.scheduler.fail_spoilt(request, schedule), slots, error=cause)
                self._pending.error(cause)

    def _slots_of_step(self, schedule: Schedule, slots_before: dict[str, int]) -> tuple[SlotRecord, ...]:
        """Who was in which slot during the step: those still there, and those that ended in it."""
        slots = []
        for row in schedule.rows:
            if isinstance(row, HeldSlot):
                slots.append(held_slot(row))
            else:
                slots.append(request_slot(row, slots_before[row.request_id]))
        present = {slot.slot for slot in slots}
        slots += [slot for slot in slots_now(self.scheduler) if slot.slot not in present]
        return tuple(sorted(slots, key=lambda s: s.slot))

    @property
    def num_kv_tokens(self) -> int:
        """Tokens whose KV is stored, frozen ones of held slots included, shared ones once."""
        running = sum(r.num_computed_tokens for r in self.scheduler.running)
        held = sum(h.request.num_computed_tokens for h in self.scheduler.held.values() if h.has_blocks)
        return running + held - self.kv.pool.num_extra_holders * self.config.block_size

    def take_quiet_record(self) -> QuietRecord | None:
        """What changed since the last record without a step; None if nothing did."""
        if self._pending.is_empty:
            return None
        events = self._pending.take(blocks=self._blocks_moved())
        return QuietRecord(self.step_number, self.clock.now(), events)

    def _blocks_moved(self) -> BlockMoves:
        moved, self._seen_blocks = block_moves(self.kv.pool, self._seen_blocks)
        return moved

    def _cached_runs(self, step: int, *, has_entered: bool) -> tuple[tuple[int, int], ...] | None:
        """Which free blocks hold a prefix, where the record has to say it."""
        pool = self.kv.pool
        if not pool.num_cached:
            return None
        is_known = pool.cached_version == self._said_cached
        if is_known and not has_entered and step % CACHED_RUNS_EVERY:
            return None
        self._said_cached = pool.cached_version
        return pool.cached_runs()

    def _note(
        self, outcome: Outcome, slots: Mapping[str, int | None], time_s: float | None = None, error: str = ""
    ) -> None:
        now = self.clock.now() if time_s is None else time_s
        for request in outcome.finished:
            cause = error if request.status is RequestStatus.FINISHED_ERROR else ""
            self._pending.finished(request, slots.get(request.request_id), now, cause)
            self.requests.pop(request.request_id, None)
        self._pending.released(releases(outcome.released), outcome.barrier)
