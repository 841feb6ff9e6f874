"""A race in the engine's thread: commands in, a state and records out for each lane.

A guest of the loop (`guest.py`): it shares with a screen, for each lane, a mailbox and a history like the
loop's own, and one queue of commands. One turn is one step of one lane; pausing, single steps and the
speed limit count rounds, a step of every lane.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from engine.clock import EngineClock
from engine.engine import Engine, StepLost
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, Command, Pause, PromptRequest, Resume, SetSpeed, Step
from engine.live.guest import GUEST_TICKETS, Lent
from engine.live.pace import Pace
from engine.live.prompting import inputs_of, most_tokens, prompts_of
from engine.live.speed import SpeedLimit
from engine.live.state import EngineState, Failure, Status
from engine.racing.arriving import LaneFeed
from engine.racing.race import LaneSpec, Race, smallest_arena, with_room
from engine.runner import Encoded, EncodedPrompt, RunnerDied, RunnerError
from engine.stream.record_parts import blocked_now, slots_now, waiting_now
from engine.stream.records import RequestRecord

#: While steps follow each other faster than this, not every one is published, seconds.
PUBLISH_EVERY_S = 0.015
#: Lanes use the arenas from this one on; 0 is the loop's own.
FIRST_ARENA = 1


@dataclass(frozen=True, slots=True)
class LaneChannels:
    """What a lane shares with a screen."""

    mailbox: Mailbox = field(default_factory=Mailbox)
    history: History = field(default_factory=lambda: History(limit=100_000))


class RaceGuest:
    """Implements `Guest`. Made by the screen, which afterwards touches only `commands` and `channels`.

    Args:
        lanes: what runs, side by side; all have equally many entries, of the same prompts' kinds.
        speed: rounds a second at most; None: as fast as it can.
        paused: begin paused.
        warm_up_steps: steps of each lane before the race, which nobody sees: the first steps of a model in a
            layout pay for the machine's warming up, and neither lane shall pay more of it.
        source: monotonic seconds, of the lanes' clocks.
    """

    def __init__(
        self,
        lanes: Sequence[LaneSpec],
        *,
        speed: float | None = None,
        paused: bool = False,
        warm_up_steps: int = 0,
        source: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.lanes = tuple(lanes)
        self.commands = CommandQueue()
        self.channels = tuple(LaneChannels() for _ in self.lanes)
        self._source = source
        self._pace = Pace(paused)
        self._speed = SpeedLimit(speed, source)
        self._warm_up_steps = warm_up_steps
        self._lent: Lent | None = None
        self._race: Race | None = None
        self._failure: Failure | None = None
        self._is_over = False
        self._published_at = float("-inf")
        self._version = 0

    @property
    def is_over(self) -> bool:
        return self._is_over

    # -- as a guest ---------------------------------------------------------------------------

    def begin(self, lent: Lent) -> None:
        """Ask for the token ids of what is text; the lanes open when they are there."""
        self._lent = lent
        texts = self._texts()
        if texts:
            lent.runner.encode(GUEST_TICKETS, inputs_of(texts))
        else:
            self._open([])
        self._publish()

    def _texts(self) -> list[PromptRequest]:
        return [entry for lane in self.lanes for entry in lane.entries if isinstance(entry, PromptRequest)]

    def take(self, event: Encoded) -> None:
        if self._race is None and self._failure is None:
            self._open(prompts_of(self._texts(), event.prompts))
            self._publish()

    def _open(self, prompts: Sequence[EncodedPrompt]) -> None:
        """Open an arena and fill a queue for every lane."""
        try:
            self._warm_up(prompts)
            feeds = self._lane_feeds(prompts)
            for feed in feeds:
                feed.enter_due()
        except RunnerDied:
            raise
        except (RunnerError, ValueError) as exc:
            self._failure = Failure("opening the lanes", str(exc))
            return
        engines = [feed.engine for feed in feeds]
        self._race = Race(engines, lambda lane: feeds[lane].enter_due())
        for engine, channels in zip(engines, self.channels, strict=True):
            if (record := engine.take_quiet_record()) is not None:
                channels.history.append(record)

    def _warm_up(self, prompts: Sequence[EncodedPrompt]) -> None:
        """Run the first steps of each lane in engines that are thrown away.

        Raises:
            RunnerError: a forward failed.
        """
        if not self._warm_up_steps:
            return
        for feed in self._lane_feeds(prompts):
            feed.enter_due()
            for _ in range(self._warm_up_steps):
                record = feed.engine.step() if feed.engine.has_work else None
                if record is not None and record.failed:
                    raise RunnerError("; ".join(record.events.errors) or "the first forward failed")

    def _lane_feeds(self, prompts: Sequence[EncodedPrompt]) -> list[LaneFeed]:
        answers = iter(prompts)
        return [self._lane_feed(number, lane, answers) for number, lane in enumerate(self.lanes)]

    def _lane_feed(self, number: int, lane: LaneSpec, answers: Iterator[EncodedPrompt]) -> LaneFeed:
        lent = self._lent
        assert lent is not None
        known: list[tuple[RequestRecord | PromptRequest, EncodedPrompt | None]] = [
            (entry, None if isinstance(entry, RequestRecord) else next(answers)) for entry in lane.entries
        ]
        for _, encoded in known:
            if encoded is not None and encoded.error:
                raise ValueError(encoded.error)
        lengths = [
            len(entry.prompt_token_ids) + entry.max_tokens
            if isinstance(entry, RequestRecord)
            else len(encoded.token_ids) + most_tokens(entry, encoded)  # type: ignore[union-attr, arg-type]
            for entry, encoded in known
        ]
        config = msgspec.structs.replace(
            lane.config, max_model_len=min(lane.config.max_model_len, lent.info.max_model_len)
        )
        engine = Engine(
            with_room(config, lengths),
            lent.runner,
            lent.info,
            clock=EngineClock(self._source),
            token_bytes=lent.token_bytes,
            n_top=lent.n_top,
            arena_id=FIRST_ARENA + number,
            epoch=lent.epoch,
        )
        return LaneFeed(engine, known, lane.arrivals)

    def turn(self) -> float:
        for command in self.commands.take_all():
            self._apply(command)
        if self._is_over:
            return float("inf")
        wait_s = self._time_to_step()
        if wait_s <= 0:
            self._step()
            return 0.0
        return wait_s

    def lost(self, reason: str) -> None:
        self._failure = Failure("model process", reason)
        self._publish()

    # -- commands -----------------------------------------------------------------------------

    def _apply(self, command: Command) -> None:
        match command:
            case Pause() | Resume() | Step():
                self._pace.apply(command)
            case SetSpeed(rounds_per_s) if rounds_per_s is None or rounds_per_s > 0:
                self._speed.set(rounds_per_s)
            case Close():
                self._end()
        self._publish()

    def _end(self) -> None:
        """Give the arenas' memory back. Where the runner is gone there is none to give."""
        self._is_over = True
        lent, race = self._lent, self._race
        if lent is None or race is None or self._failure is not None:
            return
        for engine in race.engines:
            lent.runner.open_arena(engine.arena_id, smallest_arena(engine.config))

    # -- steps --------------------------------------------------------------------------------

    def _time_to_step(self) -> float:
        race = self._race
        if race is None or self._failure is not None or not race.has_work:
            return float("inf")
        if not race.is_even:
            return 0.0
        return float("inf") if self._pace.is_standing else self._speed.wait_s

    def _step(self) -> None:
        race = self._race
        assert race is not None
        if race.is_even:
            self._speed.step_begins()
        lane = race.lane
        try:
            lane, record = race.step()
        except StepLost as loss:
            self.channels[lane].history.append(loss.record)
            raise
        except ValueError as exc:
            self._failure = Failure("a request", str(exc))
            self._publish()
            return
        self.channels[lane].history.append(record)
        if race.is_even:
            self._pace.step_taken()
        is_edge = self._pace.is_paused or not race.engines[lane].has_work
        if is_edge or self._source() - self._published_at >= PUBLISH_EVERY_S:
            self._publish()

    # -- out ----------------------------------------------------------------------------------

    def _status(self, engine: Engine | None) -> Status:
        if self._failure is not None:
            return "failed"
        if self._is_over:
            return "closed"
        if engine is None:
            return "loading"
        if not engine.has_work:
            return "idle"
        return "paused" if self._pace.is_standing else "running"

    def _publish(self) -> None:
        self._version += 1
        self._published_at = self._source()
        engines: Sequence[Engine | None] = self._race.engines if self._race else [None] * len(self.lanes)
        for lane, engine, channels in zip(self.lanes, engines, self.channels, strict=True):
            channels.mailbox.publish(self._state(lane, engine, channels))

    def _state(self, lane: LaneSpec, engine: Engine | None, channels: LaneChannels) -> EngineState:
        state = EngineState(
            version=self._version,
            status=self._status(engine),
            paused=self._pace.is_standing,
            failure=self._failure,
            model=self._lent.info if self._lent else None,
            mode=lane.config.mode,
            config=lane.config,
            speed=self._speed.steps_per_s,
            num_records=channels.history.total,
        )
        if engine is None:
            return state
        scheduler = engine.scheduler
        return msgspec.structs.replace(
            state,
            mode=engine.mode,
            config=engine.config,
            step=engine.step_number,
            time_s=engine.clock.now(),
            slots=slots_now(scheduler),
            waiting_count=len(scheduler.waiting),
            # Why they wait in the schedule; that the race stands still its own status says.
            waiting=waiting_now(scheduler, blocked_now(scheduler, False)),
        )
