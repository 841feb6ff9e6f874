"""Walking through recorded steps: where a key leads from where the view stands. Pure.

`None` stands for now: the newest picture with the live queue, one stop after the last recorded step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from cbtui.following.chronicle import Chronicle
from cbtui.telling.words import count


class NoStep(Exception):
    """There is no such step to show; the message says why, in a sentence."""


def walk(chronicle: Chronicle, shown: int | None, by: int) -> int | None:
    """One recorded step back (-1) or forth (1)."""
    return _next_in(chronicle, chronicle.steps, shown, by, "")


def next_event(chronicle: Chronicle, shown: int | None, by: int) -> int | None:
    """The previous or next step at which somebody entered, ended or gave way, or a setting changed."""
    return _next_in(chronicle, chronicle.telling, shown, by, "nothing happened before this step")


def _next_in(chronicle: Chronicle, steps: list[int], shown: int | None, by: int, nothing: str) -> int | None:
    if not chronicle.steps:
        raise NoStep("no step is recorded yet")
    if by > 0:
        if shown is None:
            raise NoStep("this is now: nothing is later")
        place = bisect_right(steps, shown)
        return steps[place] if place < len(steps) else None
    place = len(steps) if shown is None else bisect_left(steps, shown)
    if place == 0:
        raise NoStep(", ".join(part for part in (nothing, beginning(chronicle)) if part))
    return steps[place - 1]


def first(chronicle: Chronicle) -> int:
    """The first recorded step."""
    if chronicle.first_step is None:
        raise NoStep("no step is recorded yet")
    return chronicle.first_step


def goto(chronicle: Chronicle, step: int) -> int:
    """A step by its number."""
    if step in chronicle:
        return step
    oldest, newest = first(chronicle), chronicle.last_step
    assert newest is not None
    if step < oldest:
        raise NoStep(beginning(chronicle))
    if step > newest:
        raise NoStep(f"step {step:,} is not there yet: the newest is step {newest:,}")
    raise NoStep(f"step {step:,} was never seen: too many came at once")


def beginning(chronicle: Chronicle) -> str:
    """What is said at the first recorded step: how it comes to be the first."""
    oldest = first(chronicle)
    if oldest == 1 or not chronicle.num_dropped:
        return f"step {oldest:,} is the first"
    return (
        f"step {oldest:,} is the oldest kept: {count(oldest - 1, 'step')} before it dropped "
        f"(--history {chronicle.limit:,})"
    )
