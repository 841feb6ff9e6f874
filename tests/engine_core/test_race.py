"""A race: strictly alternating, each lane on its own clock, the live engine left as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from loop_desk import Desk, prompts

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, Pause, PromptRequest, Resume, SetSpeed, Step, Submit
from engine.live.guest import Lend, Lent
from engine.live.loop import EngineLoop
from engine.racing.guest import RaceGuest
from engine.racing.race import LaneSpec, Race, enter, with_room
from engine.runner import EncodedPrompt, RunnerDied
from engine.step.plan import Plan, Reply
from engine.stream.ledger import Ledger
from engine.stream.records import StepRecord

CAPS = (6, 50, 300, 30, 180, 45)
STEPS = {"static": 480, "continuous": 300}


def tutorial() -> tuple[PromptRequest, ...]:
    return tuple(PromptRequest(prompt=f"prompt {n}", max_tokens=cap) for n, cap in enumerate(CAPS))


def lanes(slots: int = 3, modes: tuple[str, ...] = ("static", "continuous")) -> list[LaneSpec]:
    return [LaneSpec(mode, EngineConfig(mode=mode, max_num_seqs=slots), tutorial()) for mode in modes]


class CountingRunner(FakeRunner):
    """Whose step it was, and a clock on which a step takes a second, and another one in arena 1."""

    def __init__(self, dies_at: int = 0) -> None:
        super().__init__()
        self.arenas: list[int] = []
        self.now = 0.0
        self._dies_at = dies_at

    def run(self, plan: Plan) -> Reply:
        self.arenas.append(plan.arena_id)
        self.now += 2.0 if plan.arena_id == 1 else 1.0
        if len(self.arenas) == self._dies_at:
            raise RunnerDied("killed")
        return super().run(plan)


def begun(runner: CountingRunner, specs: list[LaneSpec], **options: object) -> RaceGuest:
    guest = RaceGuest(specs, source=lambda: runner.now, **options)  # type: ignore[arg-type]
    runner.start()
    guest.begin(Lent(runner, runner.info, 1, fake_token_bytes, 2))
    (_, encoded) = runner.poll()
    guest.take(encoded)  # type: ignore[arg-type]
    return guest


def drained(guest: RaceGuest) -> None:
    while guest.turn() <= 0:
        pass


def steps_of(guest: RaceGuest, lane: int) -> list[StepRecord]:
    _, records = guest.channels[lane].history.since(0)
    return [record for record in records if isinstance(record, StepRecord)]


def test_lanes_alternate_until_one_has_ended() -> None:
    runner = CountingRunner()
    drained(begun(runner, lanes()))
    assert runner.arenas[:600] == [1, 2] * 300
    assert set(runner.arenas[600:]) == {1} and len(runner.arenas) == 780


def test_each_lane_has_its_own_clock() -> None:
    runner = CountingRunner()
    guest = begun(runner, lanes())
    drained(guest)
    assert steps_of(guest, 0)[-1].end_s == 960.0
    assert steps_of(guest, 1)[-1].end_s == 300.0


def test_both_lanes_make_the_same_tokens() -> None:
    guest = begun(CountingRunner(), lanes())
    drained(guest)
    outputs = [
        {
            story.request_id: story.output_token_ids
            for story in Ledger.of(channel.history.since(0)[1]).stories.values()
        }
        for channel in guest.channels
    ]
    assert outputs[0] == outputs[1] and len(outputs[0]) == 6


def test_six_slots_are_a_tie() -> None:
    guest = begun(CountingRunner(), lanes(slots=6))
    drained(guest)
    assert len(steps_of(guest, 0)) == len(steps_of(guest, 1)) == 300


def test_a_race_of_engines_alone_yields_lane_and_record() -> None:
    runner = FakeRunner()
    engines = [Engine(EngineConfig(mode=m), runner, runner.info, arena_id=n) for n, m in enumerate(STEPS)]
    for engine in engines:
        enter(engine, PromptRequest(prompt="a", max_tokens=2), EncodedPrompt([1, 2]))
    assert [(lane, record.step) for lane, record in Race(engines).run()] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_recorded_requests_enter_with_their_ids() -> None:
    guest = begun(CountingRunner(), lanes())
    drained(guest)
    recorded = tuple(
        story.request for story in Ledger.of(guest.channels[0].history.since(0)[1]).stories.values()
    )
    runner = CountingRunner()
    runner.start()
    again = RaceGuest([LaneSpec("static", EngineConfig(), recorded)], source=lambda: runner.now)
    again.begin(Lent(runner, runner.info, 1))
    drained(again)
    assert len(steps_of(again, 0)) == 300


def test_a_step_is_a_round() -> None:
    runner = CountingRunner()
    guest = begun(runner, lanes(), paused=True)
    drained(guest)
    assert runner.arenas == []
    guest.commands.put(Step(2))
    drained(guest)
    assert runner.arenas == [1, 2, 1, 2]
    assert guest.channels[0].mailbox.latest().status == "paused"


def test_the_speed_limits_rounds_not_steps() -> None:
    runner = CountingRunner()
    guest = begun(runner, lanes(), paused=True)
    drained(guest)
    assert runner.arenas == []
    guest.commands.put(SetSpeed(0.1))
    guest.commands.put(Resume())
    assert guest.turn() == 0.0 and guest.turn() == 0.0
    assert guest.turn() == pytest.approx(7.0)
    guest.commands.put(Pause())
    runner.now += 100.0
    assert guest.turn() == float("inf") and runner.arenas == [1, 2]


def test_an_arena_holds_no_more_than_the_requests_can_fill() -> None:
    config = EngineConfig(max_num_seqs=2, block_size=16, num_blocks=512)
    assert with_room(config, [10, 33, 17]).num_blocks == 3 + 2
    assert with_room(config, [5000] * 9).num_blocks == 256


def live(runner: FakeRunner) -> tuple[EngineLoop, threading.Thread]:
    loop = EngineLoop(
        EngineConfig(),
        runner,
        commands=CommandQueue(),
        mailbox=Mailbox(),
        history=History(),
        clock=EngineClock(),
        token_bytes=lambda info: fake_token_bytes,
        paused=True,
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    return loop, thread


def seen(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_live_engine_stands_still_and_goes_on_afterwards() -> None:
    loop, thread = live(FakeRunner())
    loop.commands.put(Submit((PromptRequest(prompt="live", max_tokens=3),)))
    loop.commands.put(Step(1))
    seen(lambda: loop.mailbox.latest().step == 1)
    guest = RaceGuest(lanes())
    loop.commands.put(Lend(guest))
    loop.commands.put(Resume())
    seen(lambda: all(c.mailbox.latest().status == "idle" for c in guest.channels))
    assert loop.mailbox.latest().step == 1
    guest.commands.put(Close())
    seen(lambda: guest.is_over)
    seen(lambda: loop.mailbox.latest().step == 3)
    loop.commands.put(Close())
    thread.join(5)
    assert {c.mailbox.latest().status for c in guest.channels} == {"closed"}


def test_a_paused_engine_takes_no_step_when_the_race_is_over() -> None:
    desk = Desk(paused=True)
    guest = RaceGuest(lanes())
    desk.say(prompts("ab"), Lend(guest))
    guest.commands.put(Close())
    assert desk.turn(3).waiting_count == 1
    assert guest.is_over and not desk.steps


def test_a_dead_model_ends_the_race_and_the_live_engine_loads_it_again() -> None:
    loop, thread = live(CountingRunner(dies_at=20))
    seen(lambda: loop.mailbox.latest().status == "paused")
    guest = RaceGuest(lanes())
    loop.commands.put(Lend(guest))
    seen(lambda: guest.channels[0].mailbox.latest().status == "failed")
    failure = guest.channels[1].mailbox.latest().failure
    assert failure is not None and failure.message == "killed"
    seen(lambda: loop.mailbox.latest().status == "paused")
    guest.commands.put(Close())
    seen(lambda: guest.is_over)
    loop.commands.put(Submit((PromptRequest(prompt="live", max_tokens=2),)))
    loop.commands.put(Resume())
    seen(lambda: loop.mailbox.latest().step == 2)
    loop.commands.put(Close())
    thread.join(5)


def test_a_race_without_a_model_says_so() -> None:
    class Loading(FakeRunner):
        def start(self) -> None:
            pass

    loop, thread = live(Loading())
    guest = RaceGuest(lanes())
    loop.commands.put(Lend(guest))
    seen(lambda: guest.channels[0].mailbox.latest().status == "failed")
    loop.commands.put(Close())
    thread.join(5)


# -- arrivals and warming up ---------------------------------------------------------------------


def whole_run(guest: RaceGuest, lane: int) -> Ledger:
    return Ledger.of(guest.channels[lane].history.since(0)[1])


def timed(*at: tuple[float, int]) -> tuple[PromptRequest, ...]:
    return tuple(
        PromptRequest(prompt=f"prompt {n}", max_tokens=cap, arrives_s=when)
        for n, (when, cap) in enumerate(at)
    )


def test_requests_arrive_by_each_lanes_own_clock_and_nobody_waits_for_an_empty_lane() -> None:
    """A step takes 2 s in the first lane and 1 s in the second; the third request comes to an empty lane."""
    runner = CountingRunner()
    entries = timed((5.0, 8), (9.0, 2), (500.0, 1))
    specs = [LaneSpec(mode, EngineConfig(mode=mode), entries, 1.0) for mode in ("static", "continuous")]
    guest = begun(runner, specs)
    drained(guest)
    slow, fast = (whole_run(guest, lane) for lane in (0, 1))
    # 4 s after the first one: two steps of the slow lane, four of the fast one.
    assert [slow[f"r{n}"].submitted_step for n in range(3)] == [0, 2, 10]
    assert [fast[f"r{n}"].submitted_step for n in range(3)] == [0, 4, 8]
    assert [story.request.arrival_s for story in fast.stories.values()] == [0.0, 4.0, 8.0]


def test_arrival_times_can_be_faster_than_the_files() -> None:
    runner = CountingRunner()
    entries = timed((0.0, 9), (8.0, 2))
    specs = [LaneSpec(f"{factor}", EngineConfig(), entries, factor) for factor in (1.0, 4.0)]
    guest = begun(runner, specs)
    drained(guest)
    assert whole_run(guest, 0)["r1"].submitted_step == 4
    assert whole_run(guest, 1)["r1"].submitted_step == 2


def test_a_late_request_that_cannot_run_ends_the_race_with_a_sentence() -> None:
    entries = (*timed((0.0, 3)), PromptRequest(prompt="late", max_tokens=2, arrives_s=1.0, top_p=2.0))
    guest = begun(CountingRunner(), [LaneSpec("continuous", EngineConfig(), entries, 1.0)])
    drained(guest)
    failure = guest.channels[0].mailbox.latest().failure
    assert failure is not None and "top_p" in failure.message


def test_every_lane_is_warmed_up_before_the_first_step_that_counts() -> None:
    runner = CountingRunner()
    guest = begun(runner, lanes(), warm_up_steps=3)
    assert runner.arenas == [1, 1, 1, 2, 2, 2]
    assert all(not steps_of(guest, lane) for lane in (0, 1))
    drained(guest)
    for lane in (0, 1):
        records = steps_of(guest, lane)
        assert len(records) == STEPS[guest.lanes[lane].name]
        assert records[0].step == 1 and records[0].start_s == 0.0
    cold = begun(CountingRunner(), lanes())
    drained(cold)
    for lane in (0, 1):
        runs = [whole_run(one, lane).stories.values() for one in (guest, cold)]
        warm_tokens, cold_tokens = ([story.output_token_ids for story in run] for run in runs)
        assert warm_tokens == cold_tokens
