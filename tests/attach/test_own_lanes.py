"""Prompts sent from here to a server that names nobody: their steps, lanes and times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_heard import STEP_S, served

from engine.attach.openai import Token
from engine.attach.own_lanes import OwnLanes
from engine.attach.prompts import Own
from engine.attach.seen import StepSeen
from engine.live.commands import PromptRequest


def run(
    lengths: list[int], slots: int, read_s: float, sent_s: float = 0.5
) -> tuple[list[StepSeen], OwnLanes]:
    """What is told of prompts sent at once, read every `read_s`; step n ends at 1 + n * STEP_S."""
    owns = {
        f"r{n}": Own(f"r{n}", n, PromptRequest(prompt="p", max_tokens=most), n, sent_s)
        for n, most in enumerate(lengths)
    }
    steps = served(lengths, slots)
    lanes, told, at_s, after_s = OwnLanes(), [], 1.0, 0.0
    while at_s < 2.0 + STEP_S * len(steps):
        before_s, at_s = at_s, at_s + read_s
        for number, step in enumerate(steps):
            if before_s <= 1 + number * STEP_S < at_s:
                for name, token, is_last in step:
                    owns[name].tokens.append(Token(token, b"x"))
                    owns[name].heard_s.append(1 + number * STEP_S)
                    owns[name].finish = "length" if is_last else ""
        told += lanes.steps(owns, after_s, at_s, num_running=slots)
        after_s = told[-1].end_s if told else after_s
    return told, lanes


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 3),
    st.floats(STEP_S / 3, 10 * STEP_S),
)
def test_lanes_are_reused_as_slots_are_and_no_time_goes_backwards(
    lengths: list[int], slots: int, read_s: float
) -> None:
    told, lanes = run(lengths, slots, read_s)
    steps = [step for step in told if step.parts]
    assert [[(f"r{part.seen.task}", part.output) for part in step.parts] for step in steps] == [
        sorted((name, token) for name, token, _ in step) for step in served(lengths, slots)
    ]
    assert lanes.most <= slots and not lanes.is_under_way
    for step in steps:
        taken = [part.seen.slot for part in step.parts]
        assert len(set(taken)) == len(taken)
        assert step.is_whole == (len(taken) >= slots)
    ends = [0.0, *(step.end_s for step in told)]
    assert all(before <= step.start_s <= step.end_s for before, step in zip(ends, told, strict=False))
    assert all(step.start_s >= 0.5 for step in steps if any(part.is_first for part in step.parts))
    ended = [(f"r{one.seen.task}", one.num_output) for step in told for one in step.ended]
    assert sorted(ended) == [(f"r{n}", length) for n, length in enumerate(lengths)]


def test_a_prompt_taken_back_leaves_its_lane_between_two_steps() -> None:
    own = Own("r0", 0, PromptRequest(prompt="p", max_tokens=9), 1, 0.0)
    lanes = OwnLanes()
    own.tokens, own.heard_s = [Token(1, b"x")], [1.0]
    assert len(lanes.steps({"r0": own}, 0.0, 2.0, None)) == 1 and lanes.is_under_way
    own.reason = "abort"
    (between,) = lanes.steps({"r0": own}, 1.0, 3.0, None)
    assert not between.parts and [one.reason for one in between.ended] == ["abort"]
    assert not lanes.is_under_way and lanes.is_spent(own)
