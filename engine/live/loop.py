"""The engine's thread: applies commands, paces steps, survives the model's death, publishes.

Nothing else touches the `Engine`. What the model's coming and going means to it, and to whoever else uses
the model, is `model_users.py`'s; when something is done is decided here. Shares with a screen exactly the
three objects of `channels.py`. Every edge (idle, paused, step done, failed, closed) is published
unconditionally, so the last state is always drawn.
"""

from __future__ import annotations

import secrets
import traceback
from collections import deque
from collections.abc import Callable, Iterable

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine, StepLost
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import (
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
from engine.live.guest import Lend
from engine.live.load import StartLoad, StopLoad
from engine.live.model_users import ModelUsers, TokenBytesFor
from engine.live.pace import Pace
from engine.live.publishing import LoopStanding, Publisher, status_of
from engine.live.settings import Settings
from engine.live.speed import SpeedLimit
from engine.live.state import Failure, Rejection
from engine.runner import ModelRunner, RunnerDied, RunnerError
from engine.stream.records import Record
from engine.verify.verifier import Verifier

#: How often a waiting loop looks for news from the runner, seconds.
POLL_S = 0.02
#: While steps follow each other faster than this, not every one is published, seconds.
PUBLISH_EVERY_S = 0.015


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
        verify: check finished greedy requests alone while no step is due.
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
        verify: bool = False,
    ) -> None:
        self.runner = runner
        self.commands = commands
        self.mailbox = mailbox
        self.history = history
        self.clock = clock or EngineClock()
        self.settings = Settings(config)
        self._pace = Pace(paused)
        self._speed = SpeedLimit(speed, self.clock.source)
        #: Taken out of the queue and not yet done.
        self._backlog: deque[Command] = deque()
        self._users = ModelUsers(
            runner,
            self.clock,
            self.settings,
            token_bytes=token_bytes,
            n_top=n_top,
            new_seed=new_seed,
            verify=verify,
            append=self._append,
            reject=self._reject,
        )
        self._closed = False
        self._rejection: Rejection | None = None
        self._publisher = Publisher(mailbox, self.clock.source)

    @property
    def engine(self) -> Engine | None:
        """None until the model was there once."""
        return self._users.engine

    # -- the thread ---------------------------------------------------------------------------

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Block until `Close` comes or `should_stop()`; the runner is closed in any case.

        A fault of the engine itself ends its requests in error, and a fresh one goes on; a second one soon
        after is a failure that a restart may be asked for. Never silently.
        """
        try:
            self._publish()
            self.runner.start()
            while not (self._closed or should_stop()):
                self._guarded_turn()
        except Exception as exc:
            self._users.model.failure = Failure("engine", f"{type(exc).__name__}: {exc}")
            raise
        finally:
            self.runner.close()
            self._closed = self._users.model.failure is None
            self._publish()

    def _guarded_turn(self) -> None:
        """A turn; a fault in it costs the requests there are, not the engine's thread.

        Raises:
            RunnerError: the runner was closed under way: the program ends.
            Exception: a fault while there is no engine, or none that could run.
        """
        try:
            self.turn()
        except RunnerError:
            raise
        except Exception as exc:
            if self.engine is None or self._users.model.failure is not None:
                raise
            traceback.print_exc()
            self._users.broke(self.engine, f"{type(exc).__name__}: {exc}")
            self._pace.steps_left = 0
            self._publish()

    def turn(self) -> None:
        """Take in what is new, then do a step, let somebody else use the model, or wait a little.

        A runner that dies under way is started again: nothing else of the turn is done.
        """
        try:
            self._turn()
        except StepLost as lost:
            self._append(lost.record)
            self._after_death(str(lost), lost.record.step)
        except RunnerDied as death:
            self._after_death(str(death), None)

    def _after_death(self, reason: str, step: int | None) -> None:
        self._users.died(reason, step, start_again=not self._closed)
        if not self._closed:
            self._publish()

    def _turn(self) -> None:
        users = self._users
        if users.take_news():
            self._publish()
        self._take_commands()
        is_running = users.model.can_run and not self._pace.is_paused and not users.host
        if stopped := users.load.enter(users.engine, is_running=is_running):
            self._reject(stopped)
        self._keep_quiet_changes()
        if self._closed:
            return
        if users.host:
            wait_s = users.host.turn()
        elif (wait_s := self._time_to_step()) <= 0:
            self._step()
        if wait_s <= 0:
            return
        if users.verifier is not None and self._can_check(users.verifier, wait_s):
            self._check(users.verifier)
        else:
            self._publish(if_news=True)
            self.commands.wait(min(wait_s, POLL_S))

    # -- steps --------------------------------------------------------------------------------

    def _time_to_step(self) -> float:
        """Seconds until the next step may start; infinity while there is nothing to run."""
        engine = self.engine
        if engine is None or not self._users.model.can_run:
            return float("inf")
        if not engine.has_work:
            if not self._users.arrivals:
                self._pace.steps_left = 0  # stepping an empty engine is no promise for later
            return float("inf")
        if self._pace.is_standing:
            return float("inf")
        return self._speed.wait_s

    def _step(self) -> None:
        engine = self.engine
        assert engine is not None
        self._speed.step_begins()
        self.settings.apply(engine)
        record = engine.step(self._cancelled_meanwhile)
        self._pace.step_taken()
        if record is not None:
            self._append(record)
        if self._pace.is_paused or not engine.has_work or self._publisher.age_s >= PUBLISH_EVERY_S:
            self._publish()

    def _cancelled_meanwhile(self) -> Iterable[str]:
        """Cancels that came during the forward; other commands wait for the step to be taken in."""
        self._backlog.extend(self.commands.take_all())
        return [command.request_id for command in self._backlog if isinstance(command, Cancel)]

    # -- checking alone -----------------------------------------------------------------------

    def _can_check(self, verifier: Verifier, wait_s: float) -> bool:
        """Whether there is something to check, and time for a piece of it before the next step is due."""
        is_free = self._users.model.can_run and not self._users.host
        return is_free and len(verifier) > 0 and wait_s > 2 * verifier.piece_s

    def _check(self, verifier: Verifier) -> None:
        assert self.engine is not None
        verdict = verifier.turn()
        if verdict is not None:
            self.engine.note_verified(verdict)
            self._keep_quiet_changes()
        self._publish(if_news=True)

    # -- commands -----------------------------------------------------------------------------

    def _take_commands(self) -> None:
        if self.engine is not None:
            self.settings.follow(self.engine)
        self._backlog.extend(self.commands.take_all())
        while self._backlog:
            self._apply(self._backlog.popleft())

    def _apply(self, command: Command) -> None:
        match command:
            case Submit(requests):
                self._submit(requests)
            case Cancel(request_id):
                if not self._users.arrivals.cancel(request_id) and self.engine is not None:
                    self.engine.abort_request(request_id)
            case SetMode(mode):
                self._ask(lambda: self.settings.ask_mode(mode))
            case Configure():
                self._ask(lambda: self.settings.ask(command))
            case SetSpeed(steps_per_s):
                self._ask(lambda: self._speed.set(steps_per_s))
            case Pause() | Resume() | Step() | RunUntil():
                self._pace.apply(command)
            case Restart():
                self._users.model.restart()
            case StartLoad(spec):
                self._ask(lambda: self._users.load.start(spec, self._users.ready_engine))
            case StopLoad():
                self._users.load.stop()
            case Lend(guest):
                self._users.host.lend(guest, self._users.ready_engine)
            case Close():
                self._closed = True
        if not self._pace.is_paused or not (self.engine and self.engine.has_work):
            self.settings.apply(self.engine)

    def _submit(self, requests: tuple[PromptRequest, ...]) -> None:
        arrivals = self._users.arrivals
        take_index = self.engine.take_index if self.engine else arrivals.take_index
        for error in arrivals.submit(requests, self.clock.now(), take_index):
            self._reject(error)
        if self._users.model.is_ready:
            arrivals.ask()

    def _ask(self, ask: Callable[[], None]) -> None:
        """Ask for something; what cannot be is refused in words."""
        try:
            ask()
        except ValueError as exc:
            self._reject(str(exc))

    def _reject(self, message: str) -> None:
        self._rejection = Rejection.after(self._rejection, message)

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
        if self._users.verifier is not None:
            self._users.verifier.apply(record)
        self._pace.stops_after(record, is_drained=not self._users.has_work)

    def _publish(self, *, if_news: bool = False) -> None:
        """Publish how things stand; before waiting the last state must be out, but not again and again."""
        users, settings, pace = self._users, self.settings, self._pace
        if users.engine is not None:
            settings.follow(users.engine)
        standing = LoopStanding(
            status=status_of(
                users.model, is_closed=self._closed, is_standing=pace.is_standing, has_work=users.has_work
            ),
            paused=pace.is_paused,
            until=pace.until,
            loading=users.model.loading,
            failure=users.model.failure,
            mode=settings.mode,
            pending_mode=settings.pending_mode,
            config=settings.config,
            pending_config=settings.pending_config,
            speed=self._speed.steps_per_s,
            num_records=self.history.total,
            rejection=self._rejection,
            load=users.load.now,
            verifying=None if users.verifier is None else len(users.verifier),
        )
        self._publisher.publish(standing, users.engine, users.arrivals, self.clock.now(), if_news=if_news)
