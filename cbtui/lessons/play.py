"""Plays a lesson: its lanes on a stage, stepped a round at a time until the next stop. Pure of widgets."""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.lessons.lesson import Lesson, Stop
from cbtui.lessons.stage import SetStage, ToyStage
from cbtui.racing.score import Lane, Score, longest_gap_s, score
from engine.stream.records import Record, StepRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a lesson stands.

    Attributes:
        words: what it says now.
        then: what the next key brings.
        panel: the one to look at; empty: none yet.
        at_stop: paused at a stop (or at the opening), not on the way to one.
        number, count: of the stop reached, 0 at the opening, and of all stops.
    """

    words: str
    then: str
    panel: str
    at_stop: bool
    number: int
    count: int

    @property
    def is_last(self) -> bool:
        return self.number == self.count


class LessonPlay:
    """One playing of a lesson, from its opening.

    Args:
        lesson: what is played.
        set_stage: where; on the toy model unless said otherwise.
    """

    def __init__(self, lesson: Lesson, set_stage: SetStage = ToyStage) -> None:
        self.lesson = lesson
        self.stage = set_stage(lesson.lanes)
        self._reached = 0
        self._is_moving = False
        #: Each lane's newest record when the round under way was asked for; None: no round is.
        self._before: list[Record | None] | None = None

    @property
    def lanes(self) -> list[Lane]:
        """The lanes after the last round."""
        return [
            Lane(spec.name, follower.frame())
            for spec, follower in zip(self.lesson.lanes, self.stage.followers, strict=True)
        ]

    @property
    def is_over(self) -> bool:
        """Whether the last stop is reached."""
        return self._reached == len(self.lesson.stops) and not self._is_moving

    @property
    def moment(self) -> Moment:
        """What to say now. On the way to a stop the words before stay."""
        stop = self.lesson.stops[self._reached - 1] if self._reached else None
        return Moment(
            words=self.lesson.opening if stop is None else stop.words,
            then=self.lesson.then if stop is None else stop.then,
            panel="" if stop is None else stop.panel,
            at_stop=not self._is_moving,
            number=self._reached,
            count=len(self.lesson.stops),
        )

    @property
    def next_stop(self) -> Stop | None:
        """The stop it would run to."""
        stops = self.lesson.stops
        return stops[self._reached] if self._reached < len(stops) else None

    def go(self) -> None:
        """Set off to the next stop; `round` does the steps."""
        self._is_moving = self.next_stop is not None

    @property
    def is_under_way(self) -> bool:
        """Whether a round was asked for and is not over yet."""
        return self._before is not None

    def round(self) -> None:
        """One step of every lane on the way to the next stop; `look` takes in what came of it."""
        if self.next_stop is None:
            self._is_moving = False
        elif not self.is_under_way:
            self._before = [follower.record for follower in self.stage.followers]
            self.stage.ask_round()
        self.look()

    def look(self) -> bool:
        """Take in what is new; whether anything was. A round that led to the stop ends the movement."""
        is_new = self.stage.poll()
        if self._before is not None and self.stage.is_settled:
            before, self._before = self._before, None
            self._arrive(before)
        return is_new

    def _arrive(self, before: list[Record | None]) -> None:
        """A round is over: see whether this is the stop."""
        stop = self.next_stop
        if stop is None:
            return
        followers = self.stage.followers
        is_there = any(
            isinstance(one.record, StepRecord) and one.record is not old and stop.until(lane, one.record)
            for lane, (one, old) in enumerate(zip(followers, before, strict=True))
        )
        # Nobody has anything to do: a stop that never comes must not be waited for.
        if is_there or all(one.state.status == "idle" for one in followers):
            self._reached += 1
            self._is_moving = False

    def run_to_stop(self) -> None:
        """Go to the next stop without showing the way, on a stage where that takes no time."""
        self.go()
        while self._is_moving:
            self.round()

    @property
    def is_ready(self) -> bool:
        """Whether the lanes are there; a borrowed model takes a moment."""
        return all(follower.state.status != "loading" for follower in self.stage.followers)

    def words(self) -> str:
        """The words of the moment with the figures of the moment in them."""
        if not self.is_ready:
            return f"{self.stage.name} is being made ready: it reads the prompts and warms up."
        return self.moment.words.format_map(figures(self.lanes))


def figures(lanes: list[Lane]) -> dict[str, str]:
    """Figures that words may name, of the newest step and of the run so far."""
    scores = [score(lane) for lane in lanes]
    first, last = scores[0], scores[-1]
    record = lanes[0].frame.record
    found = {
        "steps": f"{max(one.steps for one in scores):,}",
        "slot_steps": f"{first.slot_steps:,}",
        "dead": f"{first.dead:,}",
        "idle": f"{first.slot_steps - first.useful - first.dead:,}",
        "same_b": "B's answer never moved" if _same(lanes, 1) else "B's answer moved",
    }
    if record is not None:
        lengths = [segment.q_len for segment in record.segments]
        rectangle = len(lengths) * max(lengths)
        found |= {
            "tokens": f"{sum(lengths):,}",
            "prompt": f"{max(lengths):,}",
            "rectangle": f"{rectangle:,}",
            "padding": f"{rectangle - sum(lengths):,}",
        }
    return found | _about_long(lanes, first, last)


def _same(lanes: list[Lane], index: int) -> bool:
    outputs = [lane.stories[index].output_token_ids for lane in lanes if len(lane.stories) > index]
    return all(one == outputs[0] for one in outputs)


def _about_long(lanes: list[Lane], whole: Score, chunked: Score) -> dict[str, str]:
    """Of a long third prompt that enters beside a first request: what it costs the first one."""
    if len(lanes[0].stories) < 3:
        return {}
    stories = [lane.stories for lane in lanes]
    gaps = [longest_gap_s(one[:1]) for one in stories]
    times = stories[0][0].token_times
    pieces = [
        segment
        for record in lanes[-1].frame.records
        if isinstance(record, StepRecord)
        for segment in record.segments
        if segment.request_id == "r2" and segment.kind == "prefill"
    ]
    return {
        "long": f"{len(stories[0][2].request.prompt_token_ids):,}",
        "spike": _ms(gaps[0]),
        "spike_chunked": _ms(gaps[-1]),
        "usual": _ms(times[1] - times[0] if len(times) > 1 else None),
        "chunks": f"{len(pieces)} steps",
        "first_whole": _ms(stories[0][2].ttft_s),
        "first_chunked": _ms(stories[-1][2].ttft_s),
    }


def _ms(value_s: float | None) -> str:
    """Milliseconds in any case: what is compared has one unit."""
    return "–" if value_s is None else f"{value_s * 1000:,.0f} ms"
