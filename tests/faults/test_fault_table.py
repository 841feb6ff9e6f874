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
from engine.live.commands import Configure
from engine.request import SamplingParams
from engine.scheduling.modes import MODES
from engine.stream.ledger import Ledger
from engine.stream.records import StepRecord
from tests.faults.faulty import FATAL_STEP, FAULTS, FaultyRunner, broken_policy

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
    assert set(verdicts.values()) == ({"unchecked"} if "check alone" in fault else {"same"})
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
def test_a_policy_that_raises_costs_what_the_engine_holds_and_it_goes_on(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broken_policy(monkeypatch) as policy:
        desk = Desk(config=EngineConfig(mode=mode, policy=policy.name, num_blocks=16))
        desk.commands.put(prompts("a", "b", max_tokens=20))
        play(desk, 5)
        desk.commands.put(prompts("c", "behind it", max_tokens=4))
        play(desk, 20)
        ledger = told(desk)
        behind = ledger.stories.pop("r3")
        assert behind.output_token_ids == solo_outputs(list(b"behind it"), SamplingParams(max_tokens=4))
        assert all("an order by nothing" in story.finish.error for story in ledger.stories.values())
        assert "an order by nothing" in on_screen(desk)
        desk.commands.put(Configure(policy="fcfs"))
        desk.commands.put(prompts("d", max_tokens=4))
        play(desk, 30)
    story = list(told(desk).stories.values())[-1]
    assert story.output_token_ids == solo_outputs(list(b"d"), SamplingParams(max_tokens=4))
    state = desk.mailbox.latest()
    assert state.status == "idle" and state.failure is None
    assert desk.loop.engine is not None and desk.loop.engine.kv.pool.num_free == 16
