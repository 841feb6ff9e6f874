"""Tokens heard from a server that names nobody are laid into the steps that made them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine.attach.heard import EARLY_S, LATE_LEAST_S, Heard, HeardStep, HeardTokens

STEP_S = 0.04


def served(lengths: Sequence[int], slots: int) -> list[list[tuple[str, int, bool]]]:
    """Each step's tokens as a server makes them: a request takes a slot as soon as one is free."""
    waiting = [(f"r{n}", length) for n, length in enumerate(lengths)]
    running: dict[str, tuple[int, int]] = {}
    steps = []
    while waiting or running:
        while waiting and len(running) < slots:
            name, length = waiting.pop(0)
            running[name] = 0, length
        steps.append([(name, done + 1, done + 1 == length) for name, (done, length) in running.items()])
        running = {n: (done + 1, length) for n, (done, length) in running.items() if done + 1 < length}
    return steps


def numbers(steps: Sequence[HeardStep]) -> list[set[tuple[str, int]]]:
    return [{(token.request_id, token.number) for token in step.tokens} for step in steps]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 4),
    st.data(),
)
def test_every_token_is_in_the_step_that_made_it_however_late_and_mixed_up_they_are_heard(
    lengths: list[int], slots: int, data: st.DataObject
) -> None:
    steps = served(lengths, slots)
    delays = st.floats(0, EARLY_S * 0.9)
    tokens = [
        Heard((number + 1) * STEP_S + data.draw(delays), name, token, is_last)
        for number, step in enumerate(steps)
        for name, token, is_last in step
    ]
    heard, found = HeardTokens(), []
    end_s = (len(steps) + 1) * STEP_S + 1
    reads = sorted(data.draw(st.lists(st.floats(0, end_s), max_size=6)))
    before = 0.0
    for read_s in [*reads, end_s, end_s + 1]:
        heard.add(sorted((one for one in tokens if before <= one.at_s < read_s), key=lambda one: one[1:]))
        found += heard.take(read_s)
        before = read_s
    assert numbers(found) == [{(name, token) for name, token, _ in step} for step in steps]
    assert heard.first_s is None


def test_tokens_of_two_steps_that_are_heard_at_once_are_of_two_steps() -> None:
    heard = HeardTokens()
    late = [Heard(STEP_S, "a", 1), Heard(STEP_S, "b", 1)]
    late += [Heard(3.1 * STEP_S, name, number) for name in "ab" for number in (2, 3)]
    heard.add(late)
    assert numbers(heard.take(9.0)) == [{("a", n), ("b", n)} for n in (1, 2, 3)]


def test_tokens_that_are_all_heard_at_once_are_of_as_many_steps() -> None:
    heard = HeardTokens()
    heard.add(Heard(1.0 + n / 1000, "a", n, n == 3) for n in (1, 2, 3))
    assert numbers(heard.take(9.0)) == [{("a", 1)}, {("a", 2)}, {("a", 3)}]


def test_a_request_that_was_kept_out_of_some_steps_is_in_none_of_them() -> None:
    """Preempted, it makes no token until it is back."""
    num = int(3 * LATE_LEAST_S / STEP_S)
    heard = HeardTokens()
    tokens = [Heard(n * STEP_S, "a", n) for n in range(1, num + 1)]
    heard.add([*tokens, Heard(STEP_S, "b", 1), Heard(num * STEP_S, "b", 2)])
    steps = numbers(heard.take(9.0))
    assert len(steps) == num and ("b", 1) in steps[0] and ("b", 2) in steps[-1]
    assert all(len(step) == 1 for step in steps[1:-1])


def test_a_step_waits_for_those_that_decode_and_no_longer_than_they_can_be_late() -> None:
    heard = HeardTokens()
    heard.add([Heard(1.0, "a", 1), Heard(1.0, "b", 1)])
    assert len(heard.take(1.0 + STEP_S * 2)) == 1
    heard.add([Heard(1.0 + STEP_S, "a", 2)])
    assert heard.take(1.1 + STEP_S) == [] and heard.first_s == 1.0 + STEP_S
    heard.add([Heard(1.12, "b", 2)])
    assert numbers(heard.take(1.2)) == [{("a", 2), ("b", 2)}], "b is late, and it was waited for"
    heard.add([Heard(1.2, "a", 3)])
    assert numbers(heard.take(2.0)) == [{("a", 3)}], "b is too late"
    heard.ended("b")
    heard.add([Heard(2.1, "a", 4)])
    assert numbers(heard.take(2.16)) == [{("a", 4)}], "who has ended is not waited for"
