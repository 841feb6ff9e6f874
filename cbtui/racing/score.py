"""How a lane of a race stands: its figures, folded from its own records. Pure; words are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cbtui.following.frame import Frame
from engine.stream.ledger import RequestStory
from engine.stream.metrics import RunSummary


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane as the screen sees it: its name, and the newest frame of its own engine."""

    name: str
    frame: Frame

    @property
    def run(self) -> RunSummary | None:
        """What has run so far; None before the first step."""
        frame = self.frame
        return frame.run or (frame.runs[-1] if frame.runs else None)

    @property
    def is_done(self) -> bool:
        """Whether every request has ended."""
        return self.frame.state.status == "idle" and bool(self.frame.ledger.stories)

    @property
    def stories(self) -> list[RequestStory]:
        return self.frame.ledger.in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A lane's figures. Steps count from the start, seconds are on the lane's own clock.

    Attributes:
        steps, elapsed_s: so far.
        output_tokens: made.
        num_requests, num_started, num_finished: with a first token, ended.
        ttft_steps, ttft_s, completion_steps, completion_s: means to the first and the last token; None
            until every request has one, because a mean over the early ones flatters whoever let the
            others wait.
        barrier_steps: mean to the end of the wave that gives the outputs away together; None without waves.
        positions, padding, dead: token positions through the model, and those of them spent on nothing.
        slot_steps, useful: lanes offered, and those that fed a token that was needed.
        longest_gap_s: between two output tokens of one request; None below two tokens.
    """

    steps: int = 0
    elapsed_s: float = 0.0
    output_tokens: int = 0
    num_requests: int = 0
    num_started: int = 0
    num_finished: int = 0
    ttft_steps: float | None = None
    ttft_s: float | None = None
    completion_steps: float | None = None
    completion_s: float | None = None
    barrier_steps: float | None = None
    positions: int = 0
    padding: int = 0
    dead: int = 0
    slot_steps: int = 0
    useful: int = 0
    longest_gap_s: float | None = None

    @property
    def step_s(self) -> float | None:
        """Seconds of a step, on average."""
        return self.elapsed_s / self.steps if self.steps else None


def score(lane: Lane) -> Score:
    """The figures of a lane now."""
    stories, run = lane.stories, lane.run
    started = [story for story in stories if story.token_steps]
    finished = [story for story in started if story.finish is not None]
    all_started = bool(stories) and len(started) == len(stories)
    all_finished = bool(stories) and len(finished) == len(stories)
    has_waves = lane.frame.state.mode == "static"
    return Score(
        steps=run.steps if run else 0,
        elapsed_s=run.elapsed_s if run else 0.0,
        output_tokens=run.output_tokens if run else 0,
        num_requests=len(stories),
        num_started=len(started),
        num_finished=sum(story.finish is not None for story in stories),
        ttft_steps=_mean([story.token_steps[0] for story in started]) if all_started else None,
        ttft_s=_mean([story.ttft_s or 0.0 for story in started]) if all_started else None,
        completion_steps=_mean([story.token_steps[-1] for story in finished]) if all_finished else None,
        completion_s=_mean([story.e2e_s or 0.0 for story in finished]) if all_finished else None,
        barrier_steps=_mean([story.release_step or 0 for story in finished])
        if all_finished and has_waves and all(story.release_step for story in finished)
        else None,
        positions=run.token_positions if run else 0,
        padding=run.padding if run else 0,
        dead=run.dead if run else 0,
        slot_steps=run.slot_steps if run else 0,
        useful=run.useful if run else 0,
        longest_gap_s=longest_gap_s(stories),
    )


def longest_gap_s(stories: Sequence[RequestStory]) -> float | None:
    """The longest time between two successive output tokens of a request, on the lane's clock."""
    return max((gap for story in stories for gap in story.gaps_s()), default=None)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def same_outputs(lanes: Sequence[Lane]) -> bool:
    """Whether every request made the same tokens in every lane."""
    outputs = [[story.output_token_ids for story in lane.stories] for lane in lanes]
    return all(one == outputs[0] for one in outputs)
