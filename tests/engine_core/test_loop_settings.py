"""Settings given to the loop: when they act, and which are refused."""

from __future__ import annotations

from loop_desk import Desk, prompts
from oracle import solo_outputs

from engine.config import EngineConfig
from engine.live.commands import (
    Configure,
    PromptRequest,
    Resume,
    SetMode,
    Step,
    Submit,
)
from engine.request import SamplingParams


def test_settings_asked_for_while_paused_are_pending_until_the_next_step() -> None:
    desk = Desk(paused=True)
    desk.say(prompts("ab", "cd", max_tokens=9), Step())
    state = desk.say(SetMode("static"), Configure(max_num_seqs=5))
    assert (state.mode, state.pending_mode) == ("continuous", "static")
    assert state.pending_config is not None and state.pending_config.max_num_seqs == 5
    state = desk.say(Step())
    assert (state.mode, state.pending_mode, state.pending_config) == ("static", None, None)
    assert state.config.max_num_seqs == 5 and state.draining == 2
    assert desk.steps[-1].mode == "static"


def test_settings_of_an_idle_engine_take_effect_at_once() -> None:
    state = Desk(paused=True).say(SetMode("static"), Configure(max_num_seqs=2))
    assert state.mode == "static" and state.config.max_num_seqs == 2


def test_a_budget_below_the_running_count_waits_until_they_have_ended() -> None:
    desk = Desk(config=EngineConfig(max_num_seqs=3), paused=True)
    desk.say(prompts("a", "b", max_tokens=9), prompts("c", max_tokens=3), Step())
    desk.say(Configure(max_num_seqs=1, max_num_batched_tokens=2))
    assert desk.say(Step()).config.max_num_batched_tokens == 2048
    state = desk.say(Step(2), turns=8)
    assert state.config.max_num_batched_tokens == 2


def test_the_policy_and_prefix_caching_change_between_steps() -> None:
    desk = Desk(paused=True, config=EngineConfig(max_num_seqs=1))
    desk.say(prompts("ab", max_tokens=9), prompts("cd", max_tokens=5), prompts("ef", max_tokens=2), Step())
    state = desk.say(Configure(policy="shortest-first", prefix_caching=True))
    assert state.pending_config is not None and state.pending_config.policy == "shortest-first"
    assert state.config.policy == "fcfs"
    state = desk.say(Resume(), turns=24)
    assert (state.config.policy, state.config.prefix_caching) == ("shortest-first", True)
    entered = [a.request_id for r in desk.steps for a in r.events.admitted]
    assert entered == ["r0", "r2", "r1"]
    changed = {(c.name, c.after) for r in desk.history.since(0)[1] for c in r.events.changed}
    assert changed == {("policy", "shortest-first"), ("prefix_caching", "True")}


def test_an_unknown_policy_is_refused_in_words() -> None:
    state = Desk().say(Configure(policy="lifo"))
    assert state.rejection is not None and "no policy 'lifo'" in state.rejection.message
    assert state.pending_config is None


def test_the_surplus_of_fewer_slots_is_preempted_if_asked_for_and_the_budget_need_not_wait() -> None:
    desk = Desk(paused=True, config=EngineConfig(max_num_seqs=3))
    desk.say(prompts("ab", "cd", "ef", max_tokens=9), Step())
    desk.say(Configure(max_num_seqs=1, max_num_batched_tokens=2, preempt_surplus=True), Step())
    assert [p.request_id for p in desk.steps[-1].events.preempted] == ["r2", "r1"]
    assert len(desk.steps[-1].segments) == 1
    desk.say(Configure(max_num_seqs=3, max_num_batched_tokens=9), Resume(), turns=40)
    desk.say(prompts("gh", "ij", "kl", max_tokens=9), turns=2)
    desk.say(Configure(max_num_seqs=1), turns=3)
    assert not desk.steps[-1].events.preempted and len(desk.steps[-1].segments) == 3


def test_stop_strings_and_priority_come_with_the_prompt() -> None:
    desk = Desk(
        config=EngineConfig(max_num_seqs=1, policy="priority"),
        token_bytes=lambda info: lambda token: b"%d " % token,
    )
    alone = solo_outputs(list(b"ef"), SamplingParams(max_tokens=9))
    late = PromptRequest(prompt="ef", max_tokens=9, priority=-1, stop=(f"{alone[2]} ",))
    desk.say(Submit((PromptRequest(prompt="ab"), late)), turns=20)
    assert [a.request_id for r in desk.steps for a in r.events.admitted] == ["r1", "r0"]
    (end,) = [f for r in desk.steps for f in r.events.finished if f.request_id == "r1"]
    assert (end.reason, end.num_output_tokens) == ("stop", 3)
