"""Plays a recorded trace to a screen: the same three objects as an engine's loop, and no model.

Pause, single steps, speed and running until something happens work as with an engine; what would ask
something of a model is refused in a sentence. A step counts with the changes that stand before it in the
stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from engine.config import EngineConfig
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, Command, Pause, Resume, RunUntil, SetSpeed, Step
from engine.live.guest import Lend
from engine.live.pace import Pace
from engine.live.speed import SpeedLimit
from engine.live.standing import config_of, standing_after
from engine.live.state import EngineState, Rejection, Status
from engine.stream.records import QuietRecord, Record, StepRecord, TraceHeader
from engine.stream.trace import TraceError
from engine.stream.trace_files import info_of

#: How long to wait for a command at most, seconds.
POLL_S = 0.02
#: Records fed between two looks at the clock and the queue when nothing is to be waited for.
_AT_ONCE = 200

NO_MODEL = "this is a recording: it can be looked at, but there is no model to ask"
#: What cannot be asked of a recording, as `EngineState.refused` has it.
REFUSED = tuple((what, NO_MODEL) for what in ("mode", "limits", "load", "model", "prompts", "cancel"))


class ReplayLoop:
    """Feeds records into a history until `Close`.

    Args:
        header, records: of the trace; while nothing is due, it is read ahead of what is played.
        commands, mailbox, history: shared with the screen.
        paused: begin paused.
        speed: steps a second; None: as fast as it can.
        upto: play so far at once first; infinity is to the end.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        header: TraceHeader,
        records: Iterator[Record],
        *,
        commands: CommandQueue,
        mailbox: Mailbox,
        history: History,
        paused: bool = False,
        speed: float | None = None,
        upto: float = 0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._header = header
        self._info = info_of(header)
        self._records = records
        self._commands = commands
        self._mailbox = mailbox
        self._history = history
        self._pace = Pace(paused)
        self._speed = SpeedLimit(speed, now_s)
        self._upto = upto
        self._last: StepRecord | None = None
        self._late: list[QuietRecord] = []
        self._config = EngineConfig(block_size=header.block_size, max_model_len=max(2, header.max_model_len))
        #: Read and not played yet; a fault stands where it was found.
        self._ahead: deque[Record | TraceError] = deque()
        self._is_all_read = False
        #: The newest step that was read.
        self._newest = 0
        self._is_over = False
        self._is_closed = False
        self._rejection: Rejection | None = None

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Block until `Close` comes or `should_stop()`."""
        self._publish()
        while not (self._is_closed or should_stop()):
            self.turn()
        self._publish()

    def turn(self) -> None:
        """Take commands, play what is due, or wait a little."""
        for command in self._commands.take_all():
            self._apply(command)
        wait_s = self._time_to_step()
        if wait_s > 0:
            self._read_ahead(_AT_ONCE)
            self._publish()
            self._commands.wait(min(wait_s, POLL_S))
            return
        self._speed.step_begins()
        for _ in range(1 if self._speed.steps_per_s is not None and not self._is_hurrying else _AT_ONCE):
            self._play()
            if self._time_to_step() > 0 and not self._is_hurrying:
                break
        self._publish()

    # -- playing ------------------------------------------------------------------------------

    @property
    def _is_hurrying(self) -> bool:
        """On the way to where somebody wants to be: nothing is computed, so there is nothing to wait for."""
        is_behind = self._upto > (self._last.step if self._last else 0)
        return not self._is_over and (is_behind or self._pace.is_awaiting)

    def _time_to_step(self) -> float:
        if self._is_over:
            return float("inf")
        if self._is_hurrying:
            return 0.0
        if self._pace.is_standing:
            return float("inf")
        return 0.0 if self._pace.steps_left else self._speed.wait_s

    def _play(self) -> None:
        """Append the records up to the next step's."""
        while (record := self._read()) is not None:
            self._history.append(record)
            if isinstance(record, QuietRecord):
                self._late.append(record)
            else:
                self._last, self._late = record, []
                self._config = config_of(record, self._config)
                self._pace.step_taken()
            if self._pace.stops_after(record, is_drained=False) or isinstance(record, StepRecord):
                return

    def _read(self) -> Record | None:
        if self._is_over:
            return None
        if not self._ahead:
            self._read_ahead(1)
        record = self._ahead.popleft() if self._ahead else None
        if isinstance(record, TraceError):
            self._reject(f"{record}; what stands before is shown")
            record = None
        if record is None:
            self._is_over = True
            self._pace.over()
        return record

    def _read_ahead(self, number: int) -> None:
        """Read so many records more, so that it is known how far the recording goes."""
        for _ in range(0 if self._is_all_read else number):
            try:
                record: Record | TraceError | None = next(self._records, None)
            except TraceError as exc:
                record = exc
            self._is_all_read = record is None or isinstance(record, TraceError)
            if record is None:
                return
            self._ahead.append(record)
            if isinstance(record, TraceError):
                return
            self._newest = max(self._newest, record.step)

    # -- commands -----------------------------------------------------------------------------

    def _apply(self, command: Command) -> None:
        if self._is_over and isinstance(command, Resume | Step | RunUntil):
            self._reject("the recording ends here")
            return
        match command:
            case Pause() | Resume() | Step() | RunUntil():
                self._pace.apply(command)
            case SetSpeed(speed):
                self._set_speed(speed)
            case Close():
                self._is_closed = True
            case Lend(guest):
                guest.lost(NO_MODEL)
            case _:
                self._reject(NO_MODEL)

    def _set_speed(self, steps_per_s: float | None) -> None:
        try:
            self._speed.set(steps_per_s)
        except ValueError as exc:
            self._reject(str(exc))

    def _reject(self, message: str) -> None:
        self._rejection = Rejection.after(self._rejection, message)

    # -- out ----------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Publish how things stand, if that is news."""
        self._mailbox.publish_if_news(self._state())

    def _state(self) -> EngineState:
        last, now = self._last, standing_after(self._last, self._late)
        return EngineState(
            status=self._status(),
            paused=self._pace.is_paused,
            until=self._pace.until,
            model=self._info,
            mode=last.mode if last else self._config.mode,
            config=self._config,
            speed=self._speed.steps_per_s,
            step=last.step if last else 0,
            time_s=last.end_s if last else 0.0,
            slots=now.slots,
            waiting_count=now.waiting_count,
            waiting=now.waiting,
            num_records=self._history.total,
            rejection=self._rejection,
            is_recording=True,
            newest_step=self._newest if self._is_all_read else 0,
            is_all_read=self._is_all_read,
            provenance=self._header.provenance,
            refused=REFUSED,
        )

    def _status(self) -> Status:
        if self._is_closed:
            return "closed"
        if self._pace.is_standing:
            return "paused"
        return "idle" if self._is_over else "running"
