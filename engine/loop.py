"""The engine's thread: applies commands, paces steps, survives the model's death, publishes.

Owns the `Engine`; nothing else touches it. Shares with a screen exactly the three objects of
`channels.py`. Every edge (idle, paused, step done, failed, closed) is published unconditionally, so the
last state is always drawn.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from engine.arrivals import Arrivals
from engine.channels import CommandQueue, History, Mailbox
from engine.clock import EngineClock
from engine.commands import (
    Cancel,
    Close,
    Command,
    Configure,
    Pause,
    PromptRequest,
    Restart,
    Resume,
    RunUntil,
    SetMode,
    SetSpeed,
    Step,
    Submit,
)
from engine.config import ConfigError, EngineConfig
from engine.engine import Engine, StepLost
from engine.guest import GUEST_TICKETS, Guest, Lend, Lent
from engine.load import LOAD_TICKET, MOST_WAITING, LoadSpec, StartLoad, StopLoad, passage
from engine.load_feed import LoadFeed
from engine.runner import (
    Died,
    Encoded,
    LoadFailed,
    Loading,
    ModelInfo,
    ModelRunner,
    PromptInput,
    Ready,
    RunnerDied,
    RunnerError,
)
from engine.scheduling.modes import mode_named
from engine.state import EngineState, Failure, Rejection, Status
from engine.stream.recording import blocked_now, slots_now, waiting_now
from engine.stream.records import Record

#: How often a waiting loop looks for news from the runner, seconds.
POLL_S = 0.02
#: While steps follow each other faster than this, not every one is published, seconds.
PUBLISH_EVERY_S = 0.015
#: A second death of the model process within this time stops the restarts, seconds.
DEATHS_APART_S = 60.0

TokenBytesFor = Callable[[ModelInfo], Callable[[int], bytes] | None]


class EngineLoop:
    """Drives an engine from a command queue until `Close`.

    Args:
        config: limits and the first mode.
        runner: not yet started; the loop starts, restarts and closes it.
        commands, mailbox, history: shared with the screen.
        paused: begin paused.
        speed: steps a second at most; None: as fast as it can.
        n_top: likeliest tokens recorded beside each sampled one.
        token_bytes: makes the id → bytes function for a loaded model.
        clock: engine clock; its source also paces steps.
        new_seed: picks a seed for requests without one.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner,
        *,
        commands: CommandQueue,
        mailbox: Mailbox,
        history: History,
        paused: bool = False,
        speed: float | None = None,
        n_top: int = 0,
        token_bytes: TokenBytesFor = lambda info: None,
        clock: EngineClock | None = None,
        new_seed: Callable[[], int] = lambda: secrets.randbits(32),
    ) -> None:
        self.runner = runner
        self.commands = commands
        self.mailbox = mailbox
        self.history = history
        self.clock = clock or EngineClock()
        self.engine: Engine | None = None
        self._config = config
        self._pending_config: EngineConfig | None = None
        self._pending_mode: str | None = None
        self._paused = paused
        self._steps_left = 0
        self._speed = speed
        self._n_top = n_top
        self._token_bytes = token_bytes
        #: Of the loaded model.
        self._read_tokens: Callable[[int], bytes] | None = None
        self._backlog: deque[Command] = deque()
        self._arrivals = Arrivals(runner, new_seed)
        self._guest: Guest | None = None
        self._load: LoadFeed | None = None
        self._ready = False
        self._closed = False
        self._loading: Loading | None = Loading("starting the model process")
        self._failure: Failure | None = None
        self._rejection: Rejection | None = None
        self._until: RunUntil | None = None
        self._death_reason = ""
        self._last_death: tuple[float, int | None] | None = None
        self._next_step_at = 0.0
        self._published_at = float("-inf")
        self._published: object = None
        self._version = 0

    # -- the thread ---------------------------------------------------------------------------

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Block until `Close` comes or `should_stop()`; the runner is closed in any case.

        A fault of the engine itself ends the loop in state `failed` with its cause, never silently.
        """
        try:
            self._publish()
            self.runner.start()
            while not (self._closed or should_stop()):
                self._turn()
        except Exception as exc:
            self._failure = Failure("engine", f"{type(exc).__name__}: {exc}")
            raise
        finally:
            self.runner.close()
            self._closed = self._failure is None
            self._publish()

    def _turn(self) -> None:
        self._take_runner_events()
        self._take_commands()
        if self._load is not None:
            self._take_load(self._load)
        self._keep_quiet_changes()
        if self._closed:
            return
        wait_s = self._time_to_step() if self._guest is None else self._guest_turn(self._guest)
        if wait_s <= 0 and self._guest is None:
            self._step()
        elif wait_s > 0:
            self._publish_if_changed()
            self.commands.wait(min(wait_s, POLL_S))

    def _guest_turn(self, guest: Guest) -> float:
        """Let a guest do a step while this loop's own engine stands still; seconds until its next."""
        try:
            wait_s = guest.turn()
        except RunnerDied as exc:
            self._after_death(str(exc), None)
            return 0.0
        if guest.is_over:
            self._guest, wait_s = None, 0.0
        return wait_s

    def _lend(self, guest: Guest) -> None:
        self._guest = guest
        if self.engine is None or not self._ready:
            guest.lost("the model is not loaded")
            return
        info, epoch = self.engine.info, self.engine.epoch
        try:
            guest.begin(Lent(self.runner, info, epoch, self._read_tokens, self._n_top))
        except RunnerDied as exc:
            self._after_death(str(exc), None)

    # -- generated load -----------------------------------------------------------------------

    def _start_load(self, spec: LoadSpec) -> None:
        if self.engine is None or not self._ready:
            self._reject("load needs the model: start it when that is there")
        elif spec.prompt_tokens[1] >= self._limits.max_model_len:
            self._reject(f"prompts must be shorter than {self._limits.max_model_len} tokens")
        else:
            self._load = LoadFeed(spec, self.clock.source())
            self.runner.encode(LOAD_TICKET, [PromptInput(passage())])

    def _take_load(self, load: LoadFeed) -> None:
        """Enqueue what arrived meanwhile."""
        if self.engine is None:
            return
        engine, now_s = self.engine, self.clock.source()
        is_running = self._ready and not self._paused and self._guest is None and self._failure is None
        load.enter(engine, now_s, self._read_tokens, is_running=is_running)
        if len(engine.scheduler.waiting) >= MOST_WAITING:
            self._load = None
            self._reject(f"the load has stopped: {MOST_WAITING:,} requests wait")

    def _take_load_text(self, event: Encoded) -> None:
        if self._load is not None and self.engine is not None:
            self._load.take_text(event.prompts[0].token_ids, self._read_tokens)

    # -- steps --------------------------------------------------------------------------------

    def _time_to_step(self) -> float:
        """Seconds until the next step may start; infinity while there is nothing to run."""
        engine = self.engine
        if engine is None or not self._ready or self._failure is not None:
            return float("inf")
        if not engine.has_work:
            if not self._arrivals:
                self._steps_left = 0  # stepping an empty engine is no promise for later
            return float("inf")
        if self._paused and not self._steps_left:
            return float("inf")
        return self._next_step_at - self.clock.source() if self._speed else 0.0

    def _step(self) -> None:
        engine = self.engine
        assert engine is not None
        now = self.clock.source()
        self._next_step_at = now + (1 / self._speed if self._speed else 0.0)
        self._apply_pending()
        try:
            record = engine.step(self._cancelled_meanwhile)
        except StepLost as lost:
            self._append(lost.record)
            self._after_death(str(lost), lost.record.step)
            return
        if self._steps_left:
            self._steps_left -= 1
        if record is not None:
            self._append(record)
        if self._paused or not engine.has_work or self.clock.source() - self._published_at >= PUBLISH_EVERY_S:
            self._publish()

    def _cancelled_meanwhile(self) -> Iterable[str]:
        """Cancels that came during the forward; other commands wait for the step to be taken in."""
        self._backlog.extend(self.commands.take_all())
        return [command.request_id for command in self._backlog if isinstance(command, Cancel)]

    # -- commands -----------------------------------------------------------------------------

    def _take_commands(self) -> None:
        self._backlog.extend(self.commands.take_all())
        while self._backlog:
            self._apply(self._backlog.popleft())

    def _apply(self, command: Command) -> None:
        match command:
            case Submit(requests):
                self._submit(requests)
            case Cancel(request_id):
                if not self._arrivals.cancel(request_id) and self.engine is not None:
                    self.engine.abort_request(request_id)
            case SetMode(mode):
                self._ask_mode(mode)
            case Configure():
                self._ask_config(command)
            case SetSpeed(steps_per_s):
                if steps_per_s is not None and not steps_per_s > 0:
                    self._reject(f"speed must be more than 0 steps a second, not {steps_per_s}")
                else:
                    self._speed, self._next_step_at = steps_per_s, 0.0
            case Pause():
                self._paused, self._steps_left, self._until = True, 0, None
            case Resume():
                self._paused, self._steps_left, self._until = False, 0, None
            case Step(count):
                self._steps_left += count
                self._paused, self._until = True, None
            case RunUntil():
                self._paused, self._steps_left, self._until = False, 0, command
            case Restart():
                self._restart()
            case StartLoad(spec):
                self._start_load(spec)
            case StopLoad():
                self._load = None
            case Lend(guest):
                self._lend(guest)
            case Close():
                self._closed = True
        if not self._paused or not (self.engine and self.engine.has_work):
            self._apply_pending()

    def _submit(self, requests: tuple[PromptRequest, ...]) -> None:
        indices = self._take_indices(len(requests))
        for error in self._arrivals.submit(requests, self.clock.now(), indices):
            self._reject(error)
        if self._ready:
            self._arrivals.ask()

    def _take_indices(self, count: int) -> list[int]:
        if self.engine is not None:
            return [self.engine.take_index() for _ in range(count)]
        first = self._arrivals.num_taken
        return list(range(first, first + count))

    def _ask_mode(self, name: str) -> None:
        try:
            mode_named(name)
        except ValueError as exc:
            self._reject(str(exc))
            return
        current = self.engine.mode if self.engine else self._config.mode
        self._pending_mode = None if name == current else name

    def _ask_config(self, command: Configure) -> None:
        wanted = {name: value for name, value in msgspec.structs.asdict(command).items() if value is not None}
        del wanted["preempt_surplus"]
        try:
            self._pending_config = msgspec.structs.replace(self._pending_config or self._limits, **wanted)
        except ConfigError as exc:
            self._reject(str(exc))

    def _apply_pending(self) -> None:
        """Let settings take effect; called between steps only."""
        engine = self.engine
        if self._pending_mode is not None:
            self._config = msgspec.structs.replace(self._config, mode=self._pending_mode)
            if engine is not None:
                engine.set_mode(self._pending_mode)
            self._pending_mode = None
        if self._pending_config is None:
            return
        if engine is not None:
            # A budget below the rows there are would leave some unfed: it waits until they have ended.
            if self._pending_config.max_num_batched_tokens < engine.scheduler.num_rows:
                return
            engine.configure(self._pending_config)
        self._config = msgspec.structs.replace(self._pending_config, mode=self._config.mode)
        self._pending_config = None

    @property
    def _limits(self) -> EngineConfig:
        return self.engine.config if self.engine else self._config

    def _reject(self, message: str) -> None:
        number = self._rejection.number + 1 if self._rejection else 1
        self._rejection = Rejection(number, message)

    # -- the model process --------------------------------------------------------------------

    def _take_runner_events(self) -> None:
        for event in self.runner.poll():
            match event:
                case Loading():
                    self._loading = event
                case Ready(info, epoch):
                    self._model_is_ready(info, epoch)
                case LoadFailed(message, stage, hint):
                    self._failure, self._ready = Failure(stage, message, hint), False
                case Encoded(ticket=ticket) if ticket >= GUEST_TICKETS:
                    self._answer_guest(event)
                case Encoded(ticket=ticket) if ticket == LOAD_TICKET:
                    self._take_load_text(event)
                case Encoded():
                    self._enqueue(event)
                case Died(message):
                    self._after_death(message, None)

    def _answer_guest(self, event: Encoded) -> None:
        if self._guest is None:
            return
        try:
            self._guest.take(event)
        except RunnerDied as exc:
            self._after_death(str(exc), None)

    def _model_is_ready(self, info: ModelInfo, epoch: int) -> None:
        try:
            if self.engine is None:
                self._read_tokens = self._token_bytes(info)
                self._config = msgspec.structs.replace(
                    self._config, max_model_len=min(self._config.max_model_len, info.max_model_len)
                )
                self.engine = Engine(
                    self._config,
                    self.runner,
                    info,
                    clock=self.clock,
                    token_bytes=self._read_tokens,
                    n_top=self._n_top,
                    epoch=epoch,
                    first_index=self._arrivals.num_taken,
                )
            else:
                self.engine.reset(epoch, self._death_reason)
        except RunnerDied as exc:
            self._after_death(str(exc), None)
            return
        except RunnerError as exc:
            self._failure = Failure("KV cache", str(exc), "use fewer blocks: --num-blocks")
            return
        self._ready, self._loading, self._failure = True, None, None
        self._arrivals.ask_again()
        self._publish()

    def _enqueue(self, event: Encoded) -> None:
        assert self.engine is not None
        for arrival, prompt in self._arrivals.answered(event):
            if prompt.error:
                self._reject(prompt.error)
                continue
            try:
                self.engine.add_request(
                    prompt.token_ids,
                    arrival.params,
                    prompt_text=arrival.request.prompt,
                    label=arrival.request.label,
                    num_template_tokens=prompt.num_template_tokens,
                    priority=arrival.request.priority,
                    arrival_s=arrival.arrival_s,
                    index=arrival.index,
                )
            except ValueError as exc:
                self._reject(str(exc))

    def _after_death(self, reason: str, step: int | None) -> None:
        """Start the model again, unless it dies too often to be worth it: twice within a minute, or
        twice in the same step (None: it died between steps)."""
        self._ready = False
        self._death_reason = reason
        if self._guest is not None:
            self._guest.lost(reason)
        if self._load is not None and not self._load.has_text:
            self._load = None  # its question died with the process
        if self._closed:
            return
        now, last = self.clock.source(), self._last_death
        self._last_death = (now, step)
        if last is not None and (now - last[0] < DEATHS_APART_S or (step is not None and step == last[1])):
            self._failure = Failure("model process", reason)
        else:
            self._loading = Loading("restarting the model process")
            self.runner.start()
        self._publish()

    def _restart(self) -> None:
        if self._failure is None:
            return
        self._failure, self._last_death = None, None
        self._loading = Loading("starting the model process")
        self.runner.start()

    # -- out ----------------------------------------------------------------------------------

    def _keep_quiet_changes(self) -> None:
        """Changes without a step get a record at once: a paused screen shows them too."""
        record = self.engine.take_quiet_record() if self.engine is not None else None
        if record is not None:
            for finish in record.events.finished:
                if finish.reason == "ignored":
                    self._reject(finish.error)
            self._append(record)

    def _append(self, record: Record) -> None:
        self.history.append(record)
        is_drained = not (self._arrivals or (self.engine is not None and self.engine.has_work))
        if self._until is not None and self._until.is_reached(record, is_drained):
            self._paused, self._until = True, None

    @property
    def _status(self) -> Status:
        if self._failure is not None:
            return "failed"
        if self._closed:
            return "closed"
        if not self._ready:
            return "loading"
        if self._paused and not self._steps_left:
            return "paused"
        return "running" if (self.engine and self.engine.has_work) or self._arrivals else "idle"

    def _publish_if_changed(self) -> None:
        """Before waiting: the last state must be out, but not again and again."""
        if self._fingerprint() != self._published:
            self._publish()

    def _fingerprint(self) -> object:
        return (
            self._status,
            self._paused,
            self._until,
            self._loading,
            self._failure,
            self._pending_mode,
            self._pending_config,
            self._limits,
            self._speed,
            self._rejection,
            self._load.now if self._load else None,
            len(self._arrivals),
            self.engine.step_number if self.engine else 0,
            self.engine.mode if self.engine else self._config.mode,
            self.history.total,
        )

    def _publish(self) -> None:
        self._version += 1
        self._published_at = self.clock.source()
        self._published = self._fingerprint()
        status, engine = self._status, self.engine
        scheduler = engine.scheduler if engine else None
        draining = len(scheduler.running) if scheduler and scheduler.is_draining else 0
        blocked = blocked_now(scheduler, self._paused) if scheduler else ""
        self.mailbox.publish(
            EngineState(
                version=self._version,
                status=status,
                paused=self._paused,
                until=self._until.words if self._until else "",
                loading=self._loading if status == "loading" else None,
                failure=self._failure,
                model=engine.info if engine else None,
                mode=engine.mode if engine else self._config.mode,
                pending_mode=self._pending_mode,
                draining=draining,
                config=self._limits,
                pending_config=self._pending_config,
                speed=self._speed,
                step=engine.step_number if engine else 0,
                time_s=self.clock.now(),
                slots=slots_now(scheduler) if scheduler else (),
                waiting_count=len(scheduler.waiting) if scheduler else 0,
                waiting=waiting_now(scheduler, "loading" if status == "loading" else blocked)
                if scheduler
                else (),
                arriving_count=len(self._arrivals),
                arriving=self._arrivals.shown("encoding" if self._ready else "loading"),
                num_records=self.history.total,
                rejection=self._rejection,
                load=self._load.now if self._load else None,
            )
        )
