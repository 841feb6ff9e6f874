"""The model dies, cannot be loaded, or the engine itself breaks: what the loop makes of it."""

from __future__ import annotations

import pytest
from loop_desk import Desk, prompts
from oracle import solo_outputs

from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.commands import (
    Restart,
    Resume,
    Step,
)
from engine.request import SamplingParams
from engine.runner import Died, LoadFailed, RunnerDied, RunnerError, RunnerEvent
from engine.step.plan import Plan, Reply


class Mortal(FakeRunner):
    """Dies in the forwards of the given steps; `killed` makes it die between steps."""

    def __init__(self, *steps: int) -> None:
        super().__init__()
        self.fatal = set(steps)
        self.killed = False

    def run(self, plan: Plan) -> Reply:
        if plan.step in self.fatal:
            raise RunnerDied("the model process was killed by signal 9")
        return super().run(plan)

    def poll(self) -> list[RunnerEvent]:
        events = super().poll()
        if self.killed:
            self.killed = False
            events.append(Died("the model process ended with status 1", self._epoch))
        return events


def test_a_death_in_a_step_ends_its_requests_restarts_the_model_and_the_waiting_run() -> None:
    desk = Desk(Mortal(2), config=EngineConfig(max_num_seqs=1))
    state = desk.say(prompts("ab", "cd"), turns=20)
    assert state.status == "idle"
    ends = {f.request_id: (f.reason, f.error) for r in desk.steps for f in r.events.finished}
    assert ends["r0"] == ("error", "the model process was killed by signal 9")
    assert ends["r1"][0] == "length"
    assert {r.epoch for r in desk.steps} == {1, 2}


def test_a_death_between_steps_loses_nothing() -> None:
    runner = Mortal()
    desk = Desk(runner, paused=True)
    desk.say(prompts("ab", max_tokens=5), Step(2), turns=6)
    runner.killed = True
    desk.turn(3)
    desk.say(Resume(), turns=12)
    made = [s.sampled for r in desk.steps for s in r.segments if s.sampled is not None]
    assert made == solo_outputs(list(b"ab"), SamplingParams(max_tokens=5))


def test_a_second_death_within_a_minute_stops_and_a_restart_goes_on() -> None:
    runner = Mortal(2, 3)
    desk = Desk(runner, config=EngineConfig(max_num_seqs=1))
    state = desk.say(prompts("ab", "cd", "ef"), turns=20)
    assert state.status == "failed" and state.failure is not None
    assert "signal 9" in state.failure.message and state.waiting_count == 1
    state = desk.say(Restart(), turns=20)
    assert state.status == "idle" and state.failure is None
    ends = {f.request_id: f.reason for r in desk.steps for f in r.events.finished}
    assert ends == {"r0": "error", "r1": "error", "r2": "length"}


def test_a_death_while_the_arena_is_opened_is_a_death_like_any_other() -> None:
    class Fragile(FakeRunner):
        def open_arena(self, arena_id: int, shape: object) -> None:
            if self._epoch == 1:
                raise RunnerDied("the model process was killed by signal 9")
            super().open_arena(arena_id, shape)  # type: ignore[arg-type]

    assert Desk(Fragile()).say(prompts("ab"), turns=12).step == 4


def test_an_arena_there_is_no_memory_for_is_a_failure_with_a_hint() -> None:
    class Small(FakeRunner):
        def open_arena(self, arena_id: int, shape: object) -> None:
            raise RunnerError("the KV cache of 9 GB does not fit")

    state = Desk(Small()).say(prompts("ab"))
    assert state.failure is not None and "--num-blocks" in state.failure.hint
    assert state.arriving_count == 1


def test_two_deaths_far_apart_are_both_survived() -> None:
    runner = Mortal()
    desk = Desk(runner)
    for _ in range(2):
        runner.killed = True
        assert desk.turn(3).status == "idle"
        desk.time.now += 100


def test_prompts_asked_to_be_encoded_before_a_death_are_asked_again() -> None:
    class Deaf(Mortal):
        def encode(self, ticket: int, prompts: list) -> None:
            if self._epoch > 1:
                super().encode(ticket, prompts)

    runner = Deaf()
    desk = Desk(runner)
    desk.say(prompts("ab"), turns=2)
    runner.killed = True
    state = desk.turn(12)
    assert state.status == "idle" and state.step == 4


def test_a_model_that_cannot_load_is_a_failure_with_stage_cause_and_hint() -> None:
    class Unloadable(FakeRunner):
        def start(self) -> None:
            self._epoch += 1
            if self._epoch == 1:
                self._events.append(LoadFailed("no such file: m.gguf", "open", "ls m.gguf"))
            else:
                super().start()

    desk = Desk(Unloadable(), started=False)
    desk.say(prompts("ab"))
    desk.runner.start()
    state = desk.turn(2)
    assert state.status == "failed" and state.failure is not None
    assert (state.failure.stage, state.failure.hint) == ("open", "ls m.gguf")
    assert state.arriving_count == 1, "prompts stay queued"
    assert desk.say(Restart(), turns=12).step == 4


class Broken(FakeRunner):
    """Answers what no runner may answer, in the given steps."""

    closed = False

    def __init__(self, *steps: int) -> None:
        super().__init__()
        self._steps = steps

    def run(self, plan: Plan) -> Reply:
        if plan.step in self._steps:
            raise ZeroDivisionError("oops")
        return super().run(plan)

    def poll(self) -> list[RunnerEvent]:
        if self._steps == ():
            raise ZeroDivisionError("oops")
        return super().poll()

    def close(self) -> None:
        self.closed = True


def test_a_fault_of_the_engine_ends_its_requests_and_those_after_it_run() -> None:
    desk = Desk(Broken(3), config=EngineConfig(max_num_seqs=2))
    desk.say(prompts("ab", "cd", "ef"), turns=0)
    for _ in range(8):
        desk.loop._guarded_turn()
    ends = [f for r in desk.history.since(0)[1] for f in r.events.finished]
    assert {(f.request_id, f.reason) for f in ends} == {(f"r{n}", "error") for n in range(3)}
    assert all("ZeroDivisionError: oops" in f.error for f in ends)
    state = desk.mailbox.latest()
    assert (state.status, state.step, state.failure) == ("idle", 2, None)
    desk.runner._steps = (0,)
    state = desk.say(prompts("gh"), turns=12)
    assert state.status == "idle" and state.step == 6 and not state.slots
    assert desk.steps[-1].segments[0].request_id == "r3" and desk.steps[-1].free_blocks == 512
    made = [s.sampled for r in desk.steps for s in r.segments if s.request_id == "r3"]
    assert made == solo_outputs(list(b"gh"), SamplingParams(max_tokens=4))


def test_a_second_fault_soon_after_is_a_failure_and_a_restart_goes_on() -> None:
    desk = Desk(Broken(1))
    for text in ("ab", "cd"):
        desk.say(prompts(text), turns=0)
        for _ in range(6):
            desk.loop._guarded_turn()
    state = desk.mailbox.latest()
    assert state.status == "failed" and state.failure is not None and state.failure.stage == "engine"
    desk.runner._steps = (0,)
    assert desk.say(prompts("ef"), Restart(), turns=16).status == "idle"
    ends = {f.request_id: f.reason for r in desk.history.since(0)[1] for f in r.events.finished}
    assert ends == {"r0": "error", "r1": "error", "r2": "length"}


def test_a_runner_that_was_closed_under_way_is_no_fault_of_the_engine() -> None:
    class Closed(FakeRunner):
        def run(self, plan: Plan) -> Reply:
            raise RunnerError("the runner is closed")

    desk = Desk(Closed())
    desk.commands.put(prompts("ab"))
    desk.loop._guarded_turn()
    with pytest.raises(RunnerError):
        desk.loop._guarded_turn()
    assert not [f for r in desk.history.since(0)[1] for f in r.events.finished]


def test_a_fault_nothing_can_be_saved_from_is_published_and_the_runner_closed() -> None:
    runner = Broken()
    desk = Desk(runner, started=False)
    with pytest.raises(ZeroDivisionError):
        desk.loop.run()
    state = desk.mailbox.latest()
    assert state.status == "failed" and state.failure is not None and "oops" in state.failure.message
    assert runner.closed
