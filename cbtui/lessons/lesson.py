"""What a lesson is: who runs, what is shown, and where it stops with which words. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.racing.race import LaneSpec
from engine.stream.records import StepRecord

#: Told of each lane's newest step, by lane: whether the lesson stops here.
Until = Callable[[int, StepRecord], bool]
#: A panel a lesson shows for a lane; `gaps` is the time between tokens of its first request.
PanelName = Literal["slots", "waiting", "row", "mask", "timeline", "gaps"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a lesson pauses.

    Attributes:
        until: the telling step.
        words: two sentences. Fields in braces are figures of the moment, see `play.figures`.
        then: what the next key brings, a few words after `space: `.
        panel: the panel to look at; marked on the screen.
    """

    until: Until
    words: str
    then: str
    panel: PanelName


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson.

    Attributes:
        title: a few words.
        question: what it answers, one sentence, for the list.
        opening: words before the first step, and what to do.
        then: what the first key brings.
        lanes: one engine each, stepped in turn.
        panels: shown for each lane, from the top.
        stops: in order; the last one ends the lesson.
    """

    title: str
    question: str
    opening: str
    then: str
    lanes: tuple[LaneSpec, ...]
    panels: tuple[PanelName, ...]
    stops: tuple[Stop, ...]
