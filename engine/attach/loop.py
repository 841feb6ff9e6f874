"""Follows a source for a screen: the same three objects as an engine's loop, and no engine.

The server keeps its own pace. Pausing holds its records back here, to be stepped through; running on
shows them all. What would change the server is refused in a sentence. A server that is lost is tried again
with growing waits, for as long as it takes.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

import msgspec

from engine.attach.source import (
    OWN,
    Opened,
    Queue,
    Refused,
    Source,
    SourceFailed,
    SourceLost,
    SourceOver,
    SourceStarting,
)
from engine.config import EngineConfig
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import (
    Cancel,
    Close,
    Command,
    Pause,
    Restart,
    Resume,
    RunUntil,
    SetSpeed,
    Step,
    Submit,
)
from engine.live.guest import Lend
from engine.live.load import StartLoad, StopLoad
from engine.live.pace import Pace
from engine.live.standing import Standing, config_of, standing_after
from engine.live.state import Arriving, EngineState, Failure, Rejection, Status
from engine.runner import Loading
from engine.stream.records import WAITING_SHOWN, Provenance, QuietRecord, Record, StepRecord

#: How long a read waits for news at most, seconds: what a key does is seen that soon.
READ_S = 0.02
#: Seconds between two tries of a lost server: the first, and the most they grow to.
RETRY_S, RETRY_MOST_S = 0.5, 15.0
#: Why a prompt waits whose steps are held back here.
HELD_STEPS = "held_steps"
#: Seconds between two looks at a server that is being started.
STARTING_S = 0.1

NOT_OURS = "the server schedules by itself, and following never changes it"
NO_PACE = "the server sets the pace; space holds its steps back, s shows them one by one"
NO_MODEL = "the model is the server's own: there is none here to lend"
NO_LOAD = "load would be in the way of the server's own users; type prompts"
_UNKNOWN_YET = "no server has answered yet"
#: Of a server that has not answered.
UNKNOWN = Provenance(
    engine="a server",
    absent=tuple((fact, _UNKNOWN_YET) for fact in ("budget", "slots", "mode", "blocks", "kv")),
)
#: What no server is asked for, as `EngineState.refused` has it.
REFUSED = (
    ("mode", NOT_OURS),
    ("limits", NOT_OURS),
    ("pace", NO_PACE),
    ("load", NO_LOAD),
    ("model", NO_MODEL),
)


class AttachLoop:
    """Reads a source into a history until `Close`.

    Args:
        source: not opened yet.
        commands, mailbox, history: shared with the screen.
        paused: begin with the records held back.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        source: Source,
        *,
        commands: CommandQueue,
        mailbox: Mailbox,
        history: History,
        paused: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._commands = commands
        self._mailbox = mailbox
        self._history = history
        self._pace = Pace(paused)
        self._now_s = now_s
        self._opened: Opened | None = None
        self._config = EngineConfig()
        self._failure: Failure | None = None
        self._starting: SourceStarting | None = None
        self._has_tried = False
        self._is_lost = True
        self._is_over = False
        self._is_closed = False
        self._tries = 0
        self._retry_at = 0.0
        self._held: deque[Record] = deque()
        #: Prompts sent from here whose arrival stands in a record that is held back.
        self._own_held: dict[str, Arriving] = {}
        #: The newest step that was read.
        self._newest = 0
        self._last: StepRecord | None = None
        self._late: list[QuietRecord] = []
        self._rejection: Rejection | None = None

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Block until `Close` comes or `should_stop()`."""
        self._publish()
        try:
            while not (self._is_closed or should_stop()):
                self.turn()
        finally:
            self._source.close()
        self._publish()

    def turn(self) -> None:
        """Take commands, read what is new, show what may be shown."""
        is_first, self._has_tried = not self._has_tried, True
        if is_first:
            self._try_again()  # before any command: a server that is being started takes prompts
        for command in self._commands.take_all():
            self._apply(command)
        if self._is_closed:
            return
        if self._is_over:
            self._commands.wait(READ_S)
        elif self._is_lost and not is_first:
            self._try_again()
        elif not is_first:
            self._read()
        self._show()
        self._publish()

    # -- the source ---------------------------------------------------------------------------

    def _try_again(self) -> None:
        wait_s = self._retry_at - self._now_s()
        if wait_s > 0:
            self._say_wait(wait_s)
            self._commands.wait(min(wait_s, READ_S))
            return
        self._starting = None
        try:
            opened = self._source.open()
        except SourceStarting as exc:
            self._starting, self._failure = exc, None
            self._retry_at = self._now_s() + STARTING_S
        except SourceFailed as exc:
            self._fail(exc.failure)
        except SourceLost as exc:
            self._lose(exc)
        except SourceOver as exc:
            self._end(str(exc))
        else:
            self._is_lost, self._failure, self._tries = False, None, 0
            if self._last is None:
                self._config = opened.config
            self._opened = opened

    def _read(self) -> None:
        try:
            records = self._source.read(READ_S)
        except SourceFailed as exc:
            self._fail(exc.failure)
        except SourceLost as exc:
            self._lose(exc)
        except SourceOver as exc:
            self._end(str(exc))
        else:
            self._held.extend(records)
            self._own_held |= {
                one.request_id: Arriving(
                    one.request_id, one.index, one.prompt_text, one.max_tokens, HELD_STEPS
                )
                for record in records
                for one in record.events.submitted
                if one.request_id.startswith(OWN)
            }
            self._newest = max((self._newest, *(r.step for r in records)))

    def _lose(self, why: SourceLost) -> None:
        wait_s = min(RETRY_S * 2**self._tries, RETRY_MOST_S)
        self._tries = min(self._tries + 1, 16)
        self._is_lost, self._retry_at = True, self._now_s() + wait_s
        self._failure = Failure("server", str(why), retry_s=wait_s, title=why.title)

    def _fail(self, failure: Failure) -> None:
        """Wait for somebody to say that it is tried again."""
        self._is_lost, self._retry_at, self._failure = True, math.inf, failure

    def _say_wait(self, wait_s: float) -> None:
        # In whole seconds, so that waiting is no news twenty times a second.
        if self._failure is not None and self._failure.retry_s is not None:
            self._failure = msgspec.structs.replace(self._failure, retry_s=float(-(-wait_s // 1)))

    def _end(self, message: str) -> None:
        self._is_over, self._failure = True, None
        self._reject(message)

    # -- showing ------------------------------------------------------------------------------

    def _show(self) -> None:
        """Append what is not held back; of that, no more than the history could keep."""
        while self._held and (not self._pace.is_standing or len(self._held) > self._history.limit):
            record = self._held.popleft()
            self._history.append(record)
            for one in record.events.submitted:
                self._own_held.pop(one.request_id, None)
            if isinstance(record, QuietRecord):
                self._late.append(record)
            else:
                self._last, self._late = record, []
                self._config = config_of(record, self._config)
                self._pace.step_taken()
            if self._pace.is_awaiting:
                self._pace.stops_after(record, is_drained=self._is_drained)

    @property
    def _is_drained(self) -> bool:
        now = standing_after(self._last, self._late)
        return not (now.slots or now.waiting_count)

    # -- commands -----------------------------------------------------------------------------

    def _apply(self, command: Command) -> None:
        match command:
            case Pause() | Resume() | Step() | RunUntil():
                self._pace.apply(command)
            case Close():
                self._is_closed = True
            case Restart():
                self._retry_at = 0.0
            case Submit(requests):
                self._ask(lambda: self._source.submit(requests))
            case Cancel(request_id):
                self._ask(lambda: self._source.cancel(request_id))
            case Lend(guest):
                guest.lost(NO_MODEL)
            case SetSpeed():
                self._reject(NO_PACE)
            case StartLoad() | StopLoad():
                self._reject(NO_LOAD)
            case _:
                self._reject(NOT_OURS)

    def _ask(self, ask: Callable[[], None]) -> None:
        if (self._opened is None or self._is_lost) and self._starting is None:
            self._reject("the server does not answer yet; send it again when it does")
            return
        try:
            ask()
        except Refused as exc:
            self._reject(str(exc))

    def _reject(self, message: str) -> None:
        self._rejection = Rejection.after(self._rejection, message)

    # -- out ----------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish how things stand, if that is news."""
        self._mailbox.publish_if_news(self._state())

    def _state(self) -> EngineState:
        last, now, opened = self._last, standing_after(self._last, self._late), self._opened
        is_silent = self._is_lost and self._starting is None
        queue = None if is_silent else self._source.queue()
        queue = queue or Queue(waiting_count=now.waiting_count, waiting=now.waiting)
        if self._pace.is_standing:
            queue = self._held_back(queue, now)
        return EngineState(
            status=self._status(
                bool(now.slots or queue.num_running or queue.waiting_count or queue.arriving)
            ),
            paused=self._pace.is_paused,
            until=self._pace.until,
            loading=self._loading(),
            failure=self._failure,
            model=opened.info if opened else None,
            mode=last.mode if last else self._config.mode,
            config=self._config,
            step=last.step if last else 0,
            time_s=last.end_s if last else 0.0,
            slots=now.slots,
            waiting_count=queue.waiting_count,
            waiting=queue.waiting,
            arriving_count=queue.arriving_count,
            num_held_here=queue.num_held,
            arriving=queue.arriving,
            num_records=self._history.total,
            newest_step=self._newest,
            is_all_read=self._is_over,
            rejection=self._rejection,
            provenance=known.provenance if (known := self._starting or opened) else UNKNOWN,
            refused=(*REFUSED, *(opened.refused if opened else ())),
        )

    def _held_back(self, queue: Queue, now: Standing) -> Queue:
        """The queue as the newest step that is shown has it; prompts sent from here stay in sight."""
        held = tuple(self._own_held.values())
        return msgspec.structs.replace(
            queue,
            waiting_count=now.waiting_count,
            waiting=now.waiting,
            arriving=(*held, *queue.arriving)[:WAITING_SHOWN],
            arriving_count=len(held) + queue.arriving_count,
        )

    def _loading(self) -> Loading | None:
        if self._starting is not None:
            return self._starting.loading
        return None if self._opened else Loading("connecting to the server")

    def _status(self, has_work: bool) -> Status:
        if self._is_closed:
            return "closed"
        if self._failure is not None:
            return "failed"
        if self._opened is None or self._starting is not None:
            return "loading"
        if self._pace.is_standing:
            return "paused"
        return "running" if has_work and not self._is_over else "idle"
