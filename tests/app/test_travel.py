"""Where the time keys lead, and what is said where they lead nowhere."""

from __future__ import annotations

import pytest
from test_chronicle import Life

from cbtui.following.chronicle import Chronicle
from cbtui.following.travel import NoStep, first, goto, next_event, walk
from engine.stream.ledger import Ledger


def recorded() -> Chronicle:
    """Nine steps; something happens in 1, 4, 5 and 9."""
    return Life(max_num_seqs=1).ask(4, 5).step().chronicle


def test_back_and_forth_with_now_after_the_last_step() -> None:
    chronicle = recorded()
    assert walk(chronicle, None, -1) == 9
    assert walk(chronicle, 9, -1) == 8
    assert walk(chronicle, 8, 1) == 9
    assert walk(chronicle, 9, 1) is None


def test_from_event_to_event() -> None:
    chronicle = recorded()
    assert chronicle.telling == [1, 4, 5, 9]
    assert [next_event(chronicle, step, -1) for step in (None, 9, 7, 4)] == [9, 5, 5, 1]
    assert [next_event(chronicle, step, 1) for step in (1, 4, 7, 9)] == [4, 5, 9, None]


def test_ends_are_said() -> None:
    chronicle = recorded()
    with pytest.raises(NoStep, match="step 1 is the first"):
        walk(chronicle, 1, -1)
    with pytest.raises(NoStep, match="nothing happened before this step, step 1 is the first"):
        next_event(chronicle, 1, -1)
    with pytest.raises(NoStep, match="nothing is later"):
        walk(chronicle, None, 1)
    for key in (lambda c: walk(c, None, -1), first, lambda c: goto(c, 1)):
        with pytest.raises(NoStep, match="no step is recorded yet"):
            key(Chronicle(Ledger(), 100))


def test_a_step_by_its_number() -> None:
    chronicle = recorded()
    assert goto(chronicle, 6) == 6
    with pytest.raises(NoStep, match="step 70 is not there yet: the newest is step 9"):
        goto(chronicle, 70)


def test_what_was_dropped_is_said_with_the_setting_that_keeps_more() -> None:
    chronicle = Life(limit=20).ask(*[20] * 30).step().chronicle
    oldest = first(chronicle)
    assert oldest > 1
    with pytest.raises(NoStep, match=rf"{oldest - 1} steps before it dropped \(--history 20\)"):
        goto(chronicle, 1)
    with pytest.raises(NoStep, match="is the oldest kept"):
        walk(chronicle, oldest, -1)
