"""Checking alone while an engine runs: in its idle time, and told in records and state."""

from __future__ import annotations

from loop_desk import Desk, prompts

from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.commands import Pause, Resume, SetSpeed
from engine.runner import Died, ForwardError, RunnerDied, RunnerEvent
from engine.step.check import Check, Checked
from engine.step.plan import Plan, Reply
from engine.stream.records import Verification


class Diary(FakeRunner):
    """Notes what is asked of it, and how long a check takes on the desk's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def run(self, plan: Plan) -> Reply:
        self.asked.append("step")
        return super().run(plan)

    def check(self, check: Check) -> Checked:
        self.asked.append("check")
        return super().check(check)


def verified(desk: Desk) -> list[Verification]:
    return [one for record in desk.history.since(0)[1] for one in record.events.verified]


def test_nothing_is_checked_unless_asked_for() -> None:
    desk = Desk(Diary())
    state = desk.say(prompts("ab"), turns=20)
    assert state.verifying is None and not verified(desk)


def test_what_ends_is_checked_once_nothing_else_is_to_be_done() -> None:
    runner = Diary()
    desk = Desk(runner, verify=True)
    desk.say(prompts("a", "bc", "def", max_tokens=3), prompts("ghi", max_tokens=9), turns=40)
    assert [one.verdict for one in verified(desk)] == ["same"] * 4
    assert runner.asked.index("check") == runner.asked.count("step") > 0
    assert desk.mailbox.latest().verifying == 0 and desk.mailbox.latest().status == "idle"


def test_between_paced_steps_there_is_time_for_a_piece() -> None:
    runner = Diary()
    desk = Desk(runner, speed=2.0, verify=True)
    desk.say(prompts("a", max_tokens=2), prompts("b", max_tokens=9), turns=400)
    assert "step" in runner.asked[runner.asked.index("check") :]
    assert [one.verdict for one in verified(desk)] == ["same"] * 2


def test_a_pause_too_short_for_a_piece_is_left_alone() -> None:
    runner = Diary()
    desk = Desk(runner, speed=8.0, verify=True)
    desk.say(prompts("a", max_tokens=2), prompts("b", max_tokens=9), turns=200)
    assert runner.asked.index("check") == runner.asked.count("step")
    assert [one.verdict for one in verified(desk)] == ["same"] * 2


def test_while_paused_what_has_ended_is_checked_and_what_runs_waits() -> None:
    desk = Desk(Diary(), verify=True, speed=1000.0)
    desk.say(SetSpeed(None), prompts("a", max_tokens=2), prompts("b", max_tokens=50), turns=6)
    assert len(desk.steps) > 2 and not verified(desk)
    state = desk.say(Pause(), turns=6)
    assert len(desk.steps) < 50
    assert [one.request_id for one in verified(desk)] == ["r0"] and state.verifying == 0
    desk.say(Resume(), turns=80)
    assert [one.request_id for one in verified(desk)] == ["r0", "r1"]


def test_a_death_in_a_check_ends_no_request_and_is_not_caused_twice() -> None:
    class Mortal(Diary):
        def check(self, check: Check) -> Checked:
            if check.token_ids[0] == ord("a"):
                self.num_deaths += 1
                raise RunnerDied("the model process was killed by signal 9")
            return super().check(check)

        num_deaths = 0

    runner = Mortal()
    desk = Desk(runner, config=EngineConfig(max_num_seqs=2), verify=True, speed=1.0)
    desk.say(prompts("a", max_tokens=1), prompts("b", "c", max_tokens=6), turns=2000)
    ends = {f.request_id: f.reason for r in desk.history.since(0)[1] for f in r.events.finished}
    assert set(ends.values()) == {"length"} and len(ends) == 3
    found = {one.request_id: one.verdict for one in verified(desk)}
    assert found == {"r0": "unchecked", "r1": "same", "r2": "same"}
    assert runner.num_deaths == 1 and desk.mailbox.latest().status == "idle"


def test_a_death_between_two_pieces_begins_the_check_anew() -> None:
    class Mortal(Diary):
        killed = False

        def poll(self) -> list[RunnerEvent]:
            events = super().poll()
            if self.killed:
                self.killed, self._checked = False, []
                events.append(Died("killed", self._epoch))
            return events

    runner = Mortal()
    desk = Desk(runner, verify=True)
    desk.say(prompts("x" * 200, max_tokens=4), turns=6)
    while "check" not in runner.asked:
        desk.turn()
    runner.killed = True
    desk.turn(60)
    assert [one.verdict for one in verified(desk)] == ["same"]


def test_a_failing_check_is_told_and_disturbs_nobody() -> None:
    class Failing(Diary):
        def check(self, check: Check) -> Checked:
            raise ForwardError("no memory for so long a sequence")

    desk = Desk(Failing(), verify=True)
    state = desk.say(prompts("ab"), turns=20)
    assert [(one.verdict, one.error) for one in verified(desk)] == [
        ("unchecked", "no memory for so long a sequence")
    ]
    assert state.failure is None and state.rejection is None
