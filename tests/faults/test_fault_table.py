"""Every fault in every mode: those concerned end in error with the cause, what they held is free, everybody
else's tokens are what they would have been, and the engine goes on with what comes next."""

from __future__ import annotations

import pytest
from loop_desk import Desk, prompts
from oracle import solo_outputs

from cbtui.following.follower import Follower
from cbtui.looks.pieces import plain
from cbtui.telling.narration import events_of
from engine.config import EngineConfig
from engine.live.commands import Configure, Resume, Step
from engine.request import SamplingParams
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES
from engine.stream.ledger import Ledger
from engine.stream.records import StepRecord
from tests.faults.faulty import BROKEN_POLICIES, FATAL_STEP, FAULTS, BrokenPolicy, FaultyRunner

TEXTS = ("a", "bcd", "ef", "g")
MAX_TOKENS = 6


def play(desk: Desk, turns: int = 80) -> None:
    for _ in range(turns):
        desk.loop._guarded_turn()


def told(desk: Desk) -> Ledger:
    ledger = Ledger()
    for record in desk.history.since(0)[1]:
        ledger.apply(record)
    return ledger


def on_screen(desk: Desk) -> str:
    """Every line the panel of what happened had for the run's events."""
    frame = Follower(desk.mailbox, desk.history).frame()
    records = desk.history.since(0)[1]
    events = [one for record in records for one in events_of(record, frame.ledger, frame.badges)]
    return "\n".join(plain(event.line) for event in events)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_those_concerned_and_nobody_else(fault: str, mode: str) -> None:
    expected = FAULTS[fault]
    runner = FaultyRunner()
    desk = Desk(
        runner, config=EngineConfig(mode=mode, max_num_seqs=2, block_size=4, num_blocks=16), verify=True
    )
    expected.switch(runner)
    desk.commands.put(prompts(*TEXTS, max_tokens=MAX_TOKENS))
    play(desk)
    ledger = told(desk)
    fatal = next((r for r in desk.history.since(0)[1] if isinstance(r, StepRecord) and r.failed), None)
    ends = expected.ends
    if ends is None:
        assert fatal is not None and fatal.step == FATAL_STEP
        ends = frozenset(segment.request_id for segment in fatal.segments)
        assert ends == {"r0", "r1"}
    for request_id, text in zip(("r0", "r1", "r2", "r3"), TEXTS, strict=True):
        story = ledger[request_id]
        assert story.finish is not None, "nothing is stuck"
        alone = solo_outputs(list(text.encode()), SamplingParams(max_tokens=MAX_TOKENS))
        if request_id in ends:
            assert story.finish.reason == "error" and expected.cause in story.finish.error
            assert story.output_token_ids == alone[: len(story.output_token_ids)]
        else:
            assert story.finish.reason == "length" and story.output_token_ids == alone
    state, engine = desk.mailbox.latest(), desk.loop.engine
    assert state.status == "idle" and state.failure is None and not state.slots
    assert engine is not None and engine.kv.pool.num_free == 16 and not engine.scheduler.held
    if expected.cause:
        assert expected.cause in on_screen(desk), "never silence"
    verdicts = {one: story.verified.verdict for one, story in ledger.stories.items() if story.verified}
    assert set(verdicts.values()) == {expected.verdict}
    # What comes next runs as if nothing had been.
    runner.in_check = None
    desk.commands.put(prompts("next", max_tokens=4))
    play(desk, 30)
    story = told(desk)["r4"]
    assert story.output_token_ids == solo_outputs(list(b"next"), SamplingParams(max_tokens=4))


@pytest.mark.parametrize("mode", MODES)
def test_a_tokenizer_that_raises_costs_its_prompts_and_says_so(mode: str) -> None:
    runner = FaultyRunner()
    runner.in_encode = "\u2603"
    desk = Desk(runner, config=EngineConfig(mode=mode, num_blocks=16))
    desk.commands.put(prompts("good", max_tokens=4))
    desk.commands.put(prompts("\u2603", max_tokens=4))
    desk.commands.put(prompts("also good", max_tokens=4))
    play(desk, 40)
    state = desk.mailbox.latest()
    assert state.rejection is not None and "no such character" in state.rejection.message
    assert state.status == "idle" and state.arriving_count == 0
    outputs = [story.output_token_ids for story in told(desk).stories.values()]
    params = SamplingParams(max_tokens=4)
    assert outputs == [solo_outputs(list(b"good"), params), solo_outputs(list(b"also good"), params)]
    assert desk.loop.engine is not None and desk.loop.engine.kv.pool.num_free == 16


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", BROKEN_POLICIES)
def test_a_broken_policy_costs_nobody_anything_and_is_given_up(
    fault: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = BROKEN_POLICIES[fault]
    said = f"the policy broken {fault.partition(' (')[0]}"
    monkeypatch.setitem(POLICIES, policy.name, policy)
    # Six blocks are too few for three requests of four: somebody has to give way.
    desk = Desk(config=EngineConfig(mode=mode, policy=policy.name, block_size=4, num_blocks=6))
    desk.commands.put(prompts("a", "b", max_tokens=15))
    play(desk, 5)
    desk.commands.put(prompts("c", "behind it", max_tokens=4))
    play(desk, 80)
    ledger = told(desk)
    for (request_id, story), text in zip(ledger.stories.items(), ("a", "b", "c", "behind it"), strict=True):
        alone = solo_outputs(list(text.encode()), SamplingParams(max_tokens=story.request.max_tokens))
        assert story.output_token_ids == alone, request_id
        assert story.finish is not None and story.finish.reason == "length"
    state = desk.mailbox.latest()
    assert state.status == "idle" and state.failure is None and not state.slots
    assert desk.loop.engine is not None and desk.loop.engine.kv.pool.num_free == 6
    assert on_screen(desk).count(said) == 1, "said, and once"
    assert state.config.policy == "fcfs" and desk.steps[-1].policy == "fcfs"
    changes = [change for r in desk.history.since(0)[1] for change in r.events.changed]
    assert ("policy", "broken", "fcfs") in [(one.name, one.before, one.after) for one in changes]


def test_a_policy_that_breaks_when_it_is_chosen_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "broken", BrokenPolicy(ZeroDivisionError("an order by nothing")))
    desk = Desk(config=EngineConfig(max_num_seqs=1, num_blocks=16), paused=True)
    desk.commands.put(prompts("a", "b", "c", "d", max_tokens=4))
    play(desk, 5)
    desk.commands.put(Step(1))
    play(desk, 5)
    desk.commands.put(Configure(policy="broken", max_num_seqs=2))
    desk.commands.put(Resume())
    play(desk, 40)
    state = desk.mailbox.latest()
    assert "an order by nothing" in on_screen(desk)
    assert state.config.policy == "fcfs" and state.config.max_num_seqs == 2 and state.pending_config is None
    stories = told(desk).stories.values()
    params = SamplingParams(max_tokens=4)
    assert [story.output_token_ids for story in stories] == [
        solo_outputs(list(text.encode()), params) for text in "abcd"
    ]
    order = sorted(stories, key=lambda story: story.finish.time_s if story.finish else 0.0)
    assert [story.request.request_id for story in order] == ["r0", "r1", "r2", "r3"]
