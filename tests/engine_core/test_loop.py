"""The engine thread's behaviour, driven turn by turn without a thread, and once with one."""

from __future__ import annotations

import threading

import msgspec
import pytest
from loop_desk import Desk, prompts
from oracle import solo_outputs

from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import (
    Cancel,
    Close,
    Command,
    Configure,
    Pause,
    PromptRequest,
    Resume,
    RunUntil,
    SetMode,
    SetSpeed,
    Step,
    Submit,
)
from engine.live.loop import EngineLoop
from engine.request import SamplingParams
from engine.step.plan import Plan, Reply


def test_typed_prompts_run_to_their_ends_and_the_engine_goes_idle() -> None:
    desk = Desk()
    state = desk.say(prompts("ab", "cde"), turns=12)
    assert state.status == "idle" and state.step == 4 and not state.slots
    outputs = [[s.sampled for r in desk.steps for s in r.segments if s.request_id == i] for i in ("r0", "r1")]
    params = SamplingParams(max_tokens=4)
    assert outputs == [solo_outputs(list(b"ab"), params), solo_outputs(list(b"cde"), params)]


def test_several_prompts_in_one_command_enter_in_one_step() -> None:
    desk = Desk()
    desk.say(prompts("a", "b", "c"), turns=8)
    assert len(desk.steps[0].segments) == 3


def test_prompts_typed_while_loading_are_shown_with_that_reason_and_run_later() -> None:
    desk = Desk(started=False)
    state = desk.say(prompts("ab"), turns=2)
    assert state.status == "loading" and state.arriving_count == 1
    assert [(a.request_id, a.prompt_text, a.reason) for a in state.arriving] == [("r0", "ab", "loading")]
    desk.runner.start()
    state = desk.turn(12)
    assert state.status == "idle" and state.step == 4 and state.arriving_count == 0


def test_a_chat_prompt_typed_before_a_model_without_a_template_goes_in_as_it_stands() -> None:
    runner = FakeRunner()
    runner.info = msgspec.structs.replace(runner.info, has_chat_template=False)
    desk = Desk(runner, started=False)
    desk.say(Submit((PromptRequest(prompt="ab", max_tokens=2, chat=True),)))
    desk.runner.start()
    state = desk.turn(12)
    assert state.step == 2 and state.rejection is None
    assert desk.steps[0].segments[0].q_len == 2


def test_arrival_numbers_go_on_across_the_load() -> None:
    desk = Desk(started=False)
    desk.say(prompts("a", "b"))
    desk.runner.start()
    desk.say(prompts("c"), turns=12)
    submitted = [q.request_id for r in desk.history.since(0)[1] for q in r.events.submitted]
    assert submitted == ["r0", "r1", "r2"]


def test_a_cancelled_prompt_that_was_still_arriving_never_runs() -> None:
    desk = Desk(started=False)
    desk.say(prompts("a", "b"), Cancel("r0"))
    desk.runner.start()
    desk.turn(12)
    assert {s.request_id for r in desk.steps for s in r.segments} == {"r1"}


def test_pause_step_and_resume() -> None:
    desk = Desk(paused=True)
    state = desk.say(prompts("ab", max_tokens=9), turns=6)
    assert (state.status, state.step, state.waiting[0].reason) == ("paused", 0, "paused")
    assert desk.say(Step()).step == 1
    assert desk.say(Step(3), turns=6).step == 4
    assert desk.mailbox.latest().status == "paused"
    assert desk.say(Resume(), turns=1).status == "running"
    assert desk.say(Pause(), turns=3).paused


def test_stepping_an_empty_engine_is_no_promise_for_later() -> None:
    desk = Desk(paused=True)
    desk.say(Step(5), turns=3)
    assert desk.say(prompts("ab"), turns=6).step == 0


def test_the_last_state_is_published_when_a_run_ends_at_full_speed() -> None:
    desk = Desk()
    state = desk.say(prompts("ab", max_tokens=50), turns=60)
    assert state.step == 50 and state.status == "idle" and state.num_records == desk.history.total


def test_speed_limits_the_steps_and_the_engine_clock_does_not_count_the_wait() -> None:
    desk = Desk(speed=10.0)
    start = desk.time.now
    desk.say(prompts("ab", max_tokens=20), turns=150)
    assert len(desk.steps) == 20
    assert desk.time.now - start >= 1.9
    assert desk.steps[-1].end_s == 0.0
    state = desk.say(SetSpeed(None), prompts("cd", max_tokens=20), turns=25)
    assert state.step == 40 and state.speed is None


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_that_is_none_is_refused_in_words(speed: float) -> None:
    state = Desk(speed=5.0).say(SetSpeed(speed))
    assert state.speed == 5.0 and state.rejection is not None and "speed" in state.rejection.message


def test_asking_for_the_mode_there_is_takes_a_pending_one_back() -> None:
    desk = Desk(paused=True)
    desk.say(prompts("ab"), Step())
    assert desk.say(SetMode("static"), SetMode("continuous")).pending_mode is None


@pytest.mark.parametrize(
    "command", [SetMode("warp"), Configure(max_num_seqs=0), Configure(max_num_batched_tokens=1)]
)
def test_a_setting_that_cannot_work_is_refused_in_words_and_changes_nothing(command: Command) -> None:
    desk = Desk()
    before = desk.mailbox.latest().config
    state = desk.say(command)
    assert state.rejection is not None and state.rejection.number == 1
    assert state.config == before and state.mode == "continuous"
    assert desk.say(command).rejection.number == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "bad", [{"prompt": ""}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "temperature": -1.0}]
)
def test_a_bad_request_is_refused_in_words_and_its_neighbours_run(bad: dict[str, object]) -> None:
    desk = Desk()
    good = PromptRequest(prompt="ab", max_tokens=2)
    state = desk.say(Submit((PromptRequest(**bad), good)), turns=12)  # type: ignore[arg-type]
    assert state.rejection is not None and state.rejection.message
    assert {s.request_id for r in desk.steps for s in r.segments} == {"r1"}


def test_a_prompt_that_can_never_fit_is_said_and_recorded() -> None:
    desk = Desk(config=EngineConfig(max_model_len=8))
    state = desk.say(prompts("more than eight tokens"), turns=6)
    assert state.rejection is not None and "max_model_len" in state.rejection.message
    finished = [f for r in desk.history.since(0)[1] for f in r.events.finished]
    assert [f.reason for f in finished] == ["ignored"]


def test_a_request_without_a_seed_gets_one_and_the_record_has_it() -> None:
    desk = Desk()
    desk.say(Submit((PromptRequest(prompt="a"), PromptRequest(prompt="a", seed=3))), turns=3)
    submitted = [q for r in desk.history.since(0)[1] for q in r.events.submitted]
    assert [q.seed for q in submitted] == [7, 3]


def test_a_cancel_while_the_forward_runs_is_applied_before_its_result() -> None:
    class CancelsDuringForward(FakeRunner):
        def run(self, plan: Plan) -> Reply:
            desk.commands.put(Cancel("r0"))
            desk.commands.put(SetMode("static"))
            return super().run(plan)

    desk = Desk(CancelsDuringForward(), paused=True)
    desk.say(prompts("ab", "cd"), Step())
    (first,) = desk.steps[:1]
    assert [f.reason for f in first.events.finished] == ["abort"]
    assert [s.sampled is None for s in first.segments] == [True, False]


def test_in_a_thread_the_same_records_come_out() -> None:
    commands, mailbox, history = CommandQueue(), Mailbox(), History()
    loop = EngineLoop(EngineConfig(), FakeRunner(), commands=commands, mailbox=mailbox, history=history)
    thread = threading.Thread(target=loop.run)
    thread.start()
    commands.put(prompts("a", "b", "c", "d", max_tokens=30))
    for _ in range(2000):
        if mailbox.latest().status == "idle" and mailbox.latest().step == 60:
            break
        thread.join(0.005)
    commands.put(Close())
    thread.join(5)
    assert not thread.is_alive() and mailbox.latest().status == "closed"
    assert mailbox.latest().step == 60


def test_a_full_history_drops_the_oldest_and_says_where_it_starts() -> None:
    desk = Desk()
    desk.say(prompts("ab", max_tokens=30), turns=40)
    records = desk.history.since(0)[1]
    small = History(limit=5)
    for record in records:
        small.append(record)
    first, kept = small.since(0)
    assert (first, kept) == (len(records) - 5, records[-5:])
    assert small.since(len(records) - 2) == (len(records) - 2, records[-2:])
    assert small.total == len(records)


@pytest.mark.parametrize(
    ("until", "step"),
    [
        (RunUntil("finished"), 2),
        (RunUntil("admitted"), 1),
        (RunUntil("step", 4), 4),
        (RunUntil("drained"), 6),
    ],
)
def test_running_until_something_happens_pauses_right_after_it(until: RunUntil, step: int) -> None:
    desk = Desk(paused=True)
    desk.say(prompts("a", max_tokens=2), prompts("b", max_tokens=6))
    state = desk.say(until, turns=0)
    assert desk.turn().until == until.words or step == 1
    state = desk.turn(12)
    assert state.paused and state.step == step and state.until == ""


def test_running_until_a_preemption_stops_at_it() -> None:
    desk = Desk(paused=True, config=EngineConfig(num_blocks=6, block_size=8))
    desk.say(*(prompts("abcd", max_tokens=20) for _ in range(3)))
    state = desk.say(RunUntil("preempted"), turns=60)
    assert state.paused and desk.steps[-1].events.preempted
    assert not any(record.events.preempted for record in desk.steps[:-1])


def test_a_cancel_between_steps_is_a_finish_and_any_other_order_takes_the_waiting_back() -> None:
    desk = Desk(config=EngineConfig(max_num_seqs=1), speed=0.001)
    desk.say(prompts("a", "b", max_tokens=9), RunUntil("finished"))
    state = desk.say(Cancel("r1"))
    assert state.paused and state.until == ""
    desk.say(RunUntil("finished"))
    assert desk.say(Resume()).until == "" and not desk.mailbox.latest().paused
