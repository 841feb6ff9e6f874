"""Stories: what a request looked like at any step, and the turns it took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scenario import Life, Scenario, scenarios

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.session import drain
from engine.stream.ledger import Ledger
from engine.stream.records import StepRecord


def told(*caps: int, **config: object) -> Ledger:
    """The stories of requests with such maxima; every reading of the clock is a second."""
    runner = FakeRunner()
    runner.start()
    ticks = iter(range(1_000_000))
    engine = Engine(
        EngineConfig(**config),  # type: ignore[arg-type]
        runner,
        runner.info,
        clock=EngineClock(lambda: float(next(ticks))),
    )
    for number, cap in enumerate(caps):
        engine.add_request([number + 1] * 4, SamplingParams(max_tokens=cap, ignore_eos=True))
    ledger = Ledger()
    for record in drain(engine):
        ledger.apply(record)
    return ledger


def test_a_story_takes_its_turns_in_order() -> None:
    first, second = told(3, 2, max_num_seqs=1).stories.values()
    assert [(turn.kind, turn.step) for turn in first.turns] == [
        ("arrived", 0),
        ("entered", 1),
        ("ended", 3),
        ("left", 3),
    ]
    assert [(turn.kind, turn.step) for turn in second.turns] == [
        ("arrived", 0),
        ("entered", 4),
        ("ended", 5),
        ("left", 5),
    ]
    times = [turn.time_s for turn in second.turns]
    assert times == sorted(times) and times[0] == second.request.arrival_s


def test_a_slot_held_after_the_end_is_left_later() -> None:
    first, _ = told(2, 5, mode="static", max_num_seqs=2).stories.values()
    assert [(turn.kind, turn.step) for turn in first.turns[2:]] == [("ended", 2), ("left", 5)]


def test_giving_way_and_coming_back_are_turns() -> None:
    stories = told(20, 20, 20, max_num_seqs=3, num_blocks=6, block_size=8).stories.values()
    tired = next(story for story in stories if story.num_preemptions)
    kinds = [turn.kind for turn in tired.turns]
    assert kinds.count("gave way") == kinds.count("back") == tired.num_preemptions
    assert all(turn.tokens > 0 for turn in tired.turns if turn.kind == "gave way")


def test_the_token_a_step_made_is_found_by_the_step() -> None:
    first, second = told(3, 2, max_num_seqs=1).stories.values()
    assert [list(first.tokens_at(step)) for step in range(5)] == [[], [0], [1], [2], []]
    assert [list(second.tokens_at(step)) for step in range(3, 7)] == [[], [0], [1], []]


@given(scenarios(), st.integers(0, 3), st.integers(1, 12))
def test_what_is_forgotten_is_needed_by_no_record_from_the_step_on(
    scenario: Scenario, kept: int, behind: int
) -> None:
    life = Life(scenario)
    life.play()
    whole, ledger = Ledger(), Ledger(kept)
    forgotten: list[str] = []
    for record in life.records:
        whole.apply(record)
        ledger.apply(record)
        step = max(0, record.step - behind)
        gone = ledger.forget(step)
        forgotten += gone
        assert all(whole[one].is_over_before(step) for one in gone)
        assert ledger.num_finished == len(whole.finished) and ledger.num_requests == len(whole.stories)
        assert forgotten + ledger.finished == whole.finished
        # As many as asked for stay, and no more than still matter beside them.
        surplus = ledger.finished[: max(0, len(ledger.finished) - kept)]
        assert not surplus or not whole[surplus[0]].is_over_before(step)
    for record in life.records:
        events = record.events
        named = {one.request_id for one in (*events.submitted, *events.finished, *events.released)}
        if isinstance(record, StepRecord):
            named |= {one.request_id for one in (*record.segments, *record.slots, *record.waiting)}
        if record.step >= step:
            assert named <= ledger.stories.keys()
    assert {one: ledger[one] for one in ledger.stories} == {one: whole[one] for one in ledger.stories}


def test_a_ledger_forgets_nothing_unless_it_is_told_to() -> None:
    ledger = told(3, 2, 4)
    assert ledger.forget(1000) == [] and len(ledger.stories) == 3
