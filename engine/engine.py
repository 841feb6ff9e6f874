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
from engine.scheduling.schedule import Outcome, Schedule
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.stopping import StopCheck
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, Reply, SampledToken
from engine.stream.recorder import Recorder, StepTimes
from engine.stream.records import QuietRecord, StepRecord, Verification


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
        self._records = Recorder(self.scheduler, self.arena, self.clock, token_bytes)
        self.token_bytes = token_bytes
        self._num_requests = first_index
        runner.open_arena(arena_id, self.arena)

    # -- between steps ------------------------------------------------------------------------

    @property
    def config(self) -> EngineConfig:
        """The limits in force; `config.mode` is the first mode, `mode` the one now."""
        return self.scheduler.config

    @property
    def mode(self) -> str:
        """One of `MODES`, by name: how the next step is batched."""
        return self.scheduler.mode.name

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
        self._records.submitted(request, prompt_text, label, num_template_tokens)
        self.requests[request.request_id] = request  # first: whatever breaks, it is known to be there
        before = self.config
        fits = self.scheduler.add(request)
        self._records.policy_given_up(before)
        if not fits:
            del self.requests[request.request_id]
            self._records.ignored(request)
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
        if name == self.mode:
            return
        self._records.changed("mode", self.mode, name)
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
        self._records.configured(before, config)

    def reset(self, epoch: int, reason: str) -> None:
        """The model process is new: open the arena again; running requests start over from the head.

        Tokens already produced stay; they are recomputed and continued as if nothing had happened.
        """
        self.epoch = epoch
        self._note(self.scheduler.reset(), {})
        self._records.error(reason)
        self.runner.open_arena(self.arena_id, self.arena)

    def note_verified(self, verification: Verification) -> None:
        """A finished request was checked alone: the next record says so."""
        self._records.verified(verification)

    def write_off(self, cause: str) -> QuietRecord:
        """After a fault of its own: end every request in error. It must not be asked for anything after.

        Touches as little as possible of what may be broken: `successor` gives an engine that is whole.
        """
        for request in self.requests.values():
            request.status = RequestStatus.FINISHED_ERROR
        return self._records.written_off(self.requests.values(), cause, self.step_number)

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
            msgspec.structs.replace(self.config, mode=self.mode),
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
        self._records.policy_given_up(config)
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
        begun = self._records.begun(schedule, plan)
        if reply is None:
            sampled: list[SampledToken | None] = [None] * len(plan.rows)
            alive = [r for r in schedule.rows if isinstance(r, Request) and r.status is RequestStatus.RUNNING]
            outcome = self.scheduler.fail(alive)
        else:
            sampled = list(reply.sampled)
            self._end_faulty(plan, schedule, reply, begun.slots)
            for place, row in enumerate(schedule.rows):
                if isinstance(row, Request) and row.status is not RequestStatus.RUNNING:
                    sampled[place] = None  # aborted while the forward ran: no token follows
            chosen = {
                row.request_id: token.token_id
                for row, token in zip(plan.rows, sampled, strict=True)
                if token is not None
            }
            outcome = self.scheduler.update(schedule, chosen)
        times = StepTimes(start_s, self.clock.now(), schedule_s)
        self._note(outcome, begun.slots, times.end_s, error)
        if error:
            self._records.error(error)
        return self._records.step(begun, sampled, reply, times)

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
                self._records.error(cause)

    def take_quiet_record(self) -> QuietRecord | None:
        """What changed since the last record without a step; None if nothing did."""
        return self._records.quiet(self.step_number)

    def _note(
        self, outcome: Outcome, slots: Mapping[str, int | None], time_s: float | None = None, error: str = ""
    ) -> None:
        """Whoever has ended is the engine's no more, and the next record's."""
        for request in outcome.finished:
            self.requests.pop(request.request_id, None)
        self._records.outcome(outcome, slots, self.clock.now() if time_s is None else time_s, error)
