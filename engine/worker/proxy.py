"""`WorkerRunner`: the `ModelRunner` whose model lives in a process of its own.

Owns the worker's life (start, death, stall, restart, end), the epoch, and which answer belongs to which
question. Knows nothing of requests or scheduling.

What a death loses. Everything the process held: arenas with their KV, and prompts it was asked to
encode. After `start()` has led to another `Ready`, **the caller opens its arenas again**, feeds its
requests from position 0 and asks again for the tickets that have no answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import msgspec

from engine import logs
from engine.runner import (
    Died,
    Encoded,
    EncodedPrompt,
    ForwardError,
    LoadFailed,
    Loading,
    PromptInput,
    Ready,
    RunnerDied,
    RunnerError,
    RunnerEvent,
)
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, Reply
from engine.worker.log import WorkerLog
from engine.worker.process import WorkerProcess
from engine.worker.questions import Questions
from engine.worker.silence import Silence
from engine.worker.wire import (
    Answer,
    ArenaFailed,
    ArenaOpened,
    CheckDone,
    CheckFailed,
    ForwardFailed,
    Heartbeat,
    OpenArena,
    Order,
    Outcome,
    Replied,
    RunCheck,
    RunnerSpec,
    RunPlan,
    Start,
    WireError,
)


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds.

    Attributes:
        heartbeat_s: between two signs of life; they come from a thread, so a long forward is no silence.
        stall_s: silence after which a loaded worker counts as stalled and is ended.
        load_stall_s: the same while it loads, when reading a library from a slow disk may hold up its
            interpreter, heartbeat included.
        close_s: what `close` takes at most.
    """

    heartbeat_s: float = 1.0
    stall_s: float = 10.0
    load_stall_s: float = 60.0
    close_s: float = 1.0


class _State(Enum):
    NEW = "not started"
    LOADING = "loading"
    READY = "ready"
    LOAD_FAILED = "without a model"
    DEAD = "dead"


class WorkerRunner:
    """Runs plans in a worker process. Implements `engine.runner.ModelRunner`.

    One thread, the engine's, calls `start`, `poll`, `open_arena`, `run` and `check`; `encode` and `close` may
    come from any, during a `run` too. Nothing waits but `run`, `check` and `open_arena`; `close`, up to
    `close_s`; and whatever first meets a death, until the process has become an exit status (milliseconds).

    Args:
        spec: which runner the worker makes, and of which model.
        log_path: where the worker prints; None: a file in the user's cache folder.
        timings: heartbeat, stall and close times.
        clock: seconds, monotonic; what silence is measured on.
    """

    def __init__(
        self,
        spec: RunnerSpec | None = None,
        *,
        log_path: Path | None = None,
        timings: Timings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec or RunnerSpec()
        self._timings = timings or Timings()
        self._log = WorkerLog(log_path or logs.log_path("worker"))
        self._silence = Silence(clock, longest_gap_s=self._timings.stall_s / 10)
        self._state = _State.NEW
        self._epoch = 0
        self._questions = Questions()
        self._death = ""
        self._closed = False
        self._process: WorkerProcess | None = None
        self._events: deque[RunnerEvent] = deque()
        self._outcomes: deque[Outcome] = deque()
        #: Held while a process is started or ended for good.
        self._lifecycle = threading.Lock()
        #: Held by whoever receives: a whole `run`, or one `poll`.
        self._receiving = threading.RLock()

    @property
    def epoch(self) -> int:
        """How often it was started; plans carry it."""
        return self._epoch

    @property
    def pid(self) -> int | None:
        """The worker's process id; None before the first start."""
        return self._process.pid if self._process else None

    @property
    def log_path(self) -> Path:
        """The file the worker prints to."""
        return self._log.path

    @property
    def _is_alive(self) -> bool:
        return self._state in (_State.LOADING, _State.READY)

    def start(self) -> None:
        """Start a worker and let it load; again after a death, a failed load, or to be rid of a live one.

        `Loading` events, then `Ready` (with the new epoch) or `LoadFailed`, or `Died`, come from `poll`.
        Arenas of an earlier epoch are gone: open them again after `Ready`.

        Raises:
            RunnerError: the runner is closed.
        """
        with self._lifecycle, self._receiving:
            if self._closed:
                raise RunnerError("the runner is closed")
            if self._process is not None and self._is_alive:
                self._process.kill()
                self._process.channel.close()
            self._epoch += 1
            self._questions.forget()
            try:
                process = WorkerProcess(self._log, f"epoch {self._epoch}")
            except OSError as error:
                self._state = _State.LOAD_FAILED
                self._events.append(LoadFailed(f"the model process cannot be started: {error}", "start"))
                return
            self._silence.broken()
            self._outcomes.clear()
            process.channel.send(Start(self._epoch, self._spec, self._timings.heartbeat_s))
            self._process = process
            self._state = _State.LOADING

    def poll(self) -> list[RunnerEvent]:
        """Events since the last call, oldest first. Never waits.

        Call it at least once a second while no plan runs: silence counts only while somebody listens.
        """
        if self._receiving.acquire(blocking=False):
            try:
                if self._is_alive and not self._closed:
                    self._outcomes.clear()  # nobody waits for one
                    self._receive()
            except RunnerDied as death:
                self._events.append(Died(str(death), self._epoch))
            finally:
                self._receiving.release()
        return [self._events.popleft() for _ in range(len(self._events))]

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        """Ask for token ids; an `Encoded` with the same ticket follows, in order.

        While the model loads, the answer comes after `Ready`. Without a worker, or if it dies, none comes:
        ask again after the next `Ready`. Prompts that cannot be sent are answered with an error.
        """
        if self._process is None or not self._is_alive:
            return
        orders = self._questions.ask(ticket, prompts)
        for order in orders:
            self._process.channel.send(order)
        if not orders:
            self._take_answer(ticket, [])

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        """Allocate KV cells under a number; the same number again replaces it. Waits for the worker.

        Raises:
            RunnerError: there is no memory for it.
            RunnerDied: the worker is gone.
        """
        with self._receiving:
            self._ask(OpenArena(arena_id, shape))
            while True:
                match self._next_outcome():
                    case ArenaOpened(arena_id=opened) if opened == arena_id:
                        return
                    case ArenaFailed(arena_id=failed, message=message) if failed == arena_id:
                        raise RunnerError(message)

    def run(self, plan: Plan) -> Reply:
        """One forward pass and its samples. Waits for the worker, however long the forward takes.

        Raises:
            ForwardError: this step failed, or the plan is of another epoch; the runner goes on.
            RunnerDied: the worker is gone: it ended, stalled, answered rubbish or was closed.
        """
        with self._receiving:
            asked = (plan.epoch, plan.step)
            if plan.epoch != self._epoch:
                raise ForwardError(f"a plan of epoch {plan.epoch}, but the model process is in {self._epoch}")
            try:
                self._ask(RunPlan(plan))
            except WireError as error:
                raise ForwardError(str(error)) from None
            while True:
                match self._next_outcome():
                    case Replied(reply) if (reply.epoch, reply.step) == asked:
                        if len(reply.sampled) != len(plan.rows):
                            self._bury(rubbish=f"{len(reply.sampled)} samples for {len(plan.rows)} rows")
                        return reply
                    case ForwardFailed(epoch, step, message) if (epoch, step) == asked:
                        raise ForwardError(message)

    def check(self, check: Check) -> Checked:
        """A piece of one sequence alone. Waits for the worker.

        Raises:
            ForwardError: it failed, or is of another epoch; the runner goes on.
            RunnerDied: the worker is gone.
        """
        with self._receiving:
            asked = (check.epoch, check.start)
            if check.epoch != self._epoch:
                raise ForwardError(
                    f"a check of epoch {check.epoch}, but the model process is in {self._epoch}"
                )
            try:
                self._ask(RunCheck(check))
            except WireError as error:
                raise ForwardError(str(error)) from None
            while True:
                match self._next_outcome():
                    case CheckDone(epoch, start, checked) if (epoch, start) == asked:
                        if len(checked.choices) != len(check.served):
                            self._bury(
                                rubbish=f"{len(checked.choices)} choices for {len(check.served)} tokens"
                            )
                        return checked
                    case CheckFailed(epoch, start, message) if (epoch, start) == asked:
                        raise ForwardError(message)

    def close(self) -> None:
        """End the worker: end-of-file, TERM, KILL, within `close_s`, whatever it is doing.

        From any thread, twice too. A `run` under way raises `RunnerDied`.
        """
        self._closed = True
        deadline = time.monotonic() + self._timings.close_s
        with self._lifecycle:
            if self._process is None:
                return
            self._process.end(self._timings.close_s * 0.9)
            # Its death has woken a run under way, which lets go of the descriptors.
            if self._receiving.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._process.channel.close()
                self._receiving.release()

    def _ask(self, order: Order) -> None:
        if self._closed:
            raise RunnerDied("the runner is closed")
        if self._state is _State.DEAD:
            raise RunnerDied(self._death)
        if self._state is not _State.READY or self._process is None:
            raise RunnerError(f"the model process is {self._state.value}")
        self._outcomes.clear()
        self._process.channel.send(order)

    def _next_outcome(self) -> Outcome:
        """Wait for the next outcome, collecting events on the way."""
        assert self._process is not None
        while not self._outcomes:
            if self._closed:
                raise RunnerDied("the runner is closed")
            self._process.channel.wait(self._timings.stall_s / 40)
            self._receive()
        return self._outcomes.popleft()

    def _receive(self) -> None:
        """Take in what is there, and see whether the worker still lives.

        Raises:
            RunnerDied: it does not; the state says so from now on.
        """
        assert self._process is not None
        channel = self._process.channel
        try:
            channel.flush()
            answers = channel.receive()
        except WireError as error:
            self._bury(rubbish=str(error))
            return
        for answer in answers:
            self._sort(answer)
        if self._state is _State.LOAD_FAILED:
            return
        if answers:
            self._silence.broken()
        if channel.ended and not self._outcomes:  # a last outcome is worth having; the end stays seen
            self._bury()
        elif not answers:
            limit = self._timings.stall_s if self._state is _State.READY else self._timings.load_stall_s
            if self._silence.seconds() > limit:
                self._bury(stalled_s=limit)

    def _sort(self, answer: Answer) -> None:
        match answer:
            case Heartbeat():
                pass
            case Loading():
                self._events.append(answer)
            case Encoded(ticket=ticket, prompts=prompts):
                self._take_answer(ticket, prompts)
            case Ready(info=info):
                self._state = _State.READY
                self._events.append(Ready(info, self._epoch))
            case LoadFailed():
                self._state = _State.LOAD_FAILED
                self._events.append(answer)
                self._retire()
            case _:
                self._outcomes.append(answer)

    def _take_answer(self, ticket: int, prompts: list[EncodedPrompt]) -> None:
        if (whole := self._questions.answer(ticket, prompts)) is not None:
            self._events.append(whole)

    def _bury(self, *, rubbish: str = "", stalled_s: float = 0.0) -> None:
        """Make a death of what was seen.

        Raises:
            RunnerDied: always.
        """
        assert self._process is not None
        if self._closed:
            self._death = "the runner is closed"
        elif rubbish:
            self._process.kill()
            self._death = self._process.sentence(f"answered rubbish ({rubbish}) and was ended")
        elif stalled_s:
            self._process.kill()
            self._death = self._process.sentence(f"gave no sign of life for {stalled_s:g} s and was ended")
        else:
            self._death = self._process.cause_of_death()
        self._state = _State.DEAD
        self._process.channel.close()
        raise RunnerDied(self._death)

    def _retire(self) -> None:
        """Let a worker without a model go; it ends at end-of-file."""
        assert self._process is not None
        self._process.end(self._timings.close_s / 2)
        self._process.channel.close()
