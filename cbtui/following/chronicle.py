"""The recorded steps: those kept, found by their number, and the figures at any of them.

Fed one record at a time; pure. What is dropped when there are too many is the oldest, in blocks, and is
counted. Figures at a step are folded from the nearest keyframe before it, so a hundred thousand steps are
as near as ten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from cbtui.drawing.slot_history import SlotHistory
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics, MetricsSnapshot, RunSummary
from engine.stream.records import Record, StepRecord

#: Steps between two keyframes; also what is dropped at once.
KEYFRAME_EVERY = 256


@dataclass(slots=True)
class Stretch:
    """Steps since the engine was last empty.

    Attributes:
        records: those kept. The list grows at its end, and loses its beginning when history is dropped.
        lanes: what every slot did in every step, dropped ones too.
    """

    records: list[Record] = field(default_factory=list)
    lanes: SlotHistory = field(default_factory=SlotHistory)

    @property
    def has_steps(self) -> bool:
        return self.lanes.num_steps > 0

    def append(self, record: Record) -> None:
        """Take a record in."""
        self.records.append(record)
        self.lanes.apply(record)

    def end_of(self, step: int) -> int:
        """How many of the records belong to steps up to `step`, what followed the step without another
        one included."""
        return bisect_right(self.records, step, key=_step_of)

    def place_of(self, step: int) -> int:
        """Where the step's record is, or where it would be."""
        return bisect_left(self.records, step, key=_step_of)

    def end_with(self, step: int) -> int:
        """How many of the records come no later than the step's own."""
        place = self.place_of(step)
        is_there = place < len(self.records) and isinstance(self.records[place], StepRecord)
        return place + 1 if is_there and self.records[place].step == step else place


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything about one recorded step that is not in its record.

    Attributes:
        record: of the step.
        records: its stretch's up to it.
        stretch: the whole stretch.
        metrics: counters after it.
        run: the run under way after it; None when it was the last of one.
    """

    record: StepRecord
    records: list[Record]
    stretch: Stretch
    metrics: MetricsSnapshot
    run: RunSummary | None


class Chronicle:
    """Keeps records and finds them again.

    Args:
        ledger: applied first, shared with `metrics`.
        limit: records kept at least, if there were as many.
    """

    def __init__(self, ledger: Ledger, limit: int) -> None:
        self.metrics = Metrics(ledger)
        self.limit = limit
        self.stretches: list[Stretch] = [Stretch()]
        #: Numbers of the steps kept, and of those at which something happened.
        self.steps: list[int] = []
        self.telling: list[int] = []
        self.num_dropped = 0
        self._num_kept = 0
        self._every = max(1, min(KEYFRAME_EVERY, limit // 4))
        #: (step, figures right after it). Records kept are those after the first one.
        self._keyframes: list[tuple[int, Metrics]] = [(0, self.metrics.copy())]
        self._since_keyframe = 0
        self._last: StepRecord | None = None
        self._folded: tuple[int, Metrics] | None = None
        self._moment: tuple[int, int, Moment] | None = None

    # -- writing ------------------------------------------------------------------------------

    @property
    def stretch(self) -> Stretch:
        """The one under way, or the last one."""
        return self.stretches[-1]

    def begin_stretch(self) -> None:
        """The engine was empty: what comes now is a stretch of its own."""
        self.stretches.append(Stretch())

    def append(self, record: Record) -> None:
        """Take a record in, after the ledger."""
        self.metrics.apply(record)
        self.stretch.append(record)
        self._num_kept += 1
        if isinstance(record, StepRecord):
            self.steps.append(record.step)
            if _is_telling(record, self._last):
                self.telling.append(record.step)
            self._last = record
            self._since_keyframe += 1
            if self._since_keyframe >= self._every:
                self._since_keyframe = 0
                self._keyframes.append((record.step, self.metrics.copy()))
                self._drop()
        elif record.events.finished and self.steps and self.telling[-1:] != [self.steps[-1]]:
            # Cancelled between steps: shown with the step before.
            self.telling.append(self.steps[-1])

    def _drop(self) -> None:
        """Drop what lies before the second keyframe, as often as enough is left."""
        while len(self._keyframes) > 1:
            step = self._keyframes[1][0]
            reaching = [(one, one.end_with(step)) for one in self.stretches]
            dropped = sum(end for _, end in reaching)
            if self._num_kept - dropped < self.limit:
                return
            for stretch, end in reaching:
                del stretch.records[:end]
                stretch.lanes.coarsen(step)
            self.stretches = [one for one in self.stretches[:-1] if one.records] + self.stretches[-1:]
            self._num_kept -= dropped
            self.num_dropped += dropped
            del self.steps[: bisect_right(self.steps, step)]
            del self.telling[: bisect_right(self.telling, step)]
            del self._keyframes[0]
            self._folded = None

    @property
    def oldest_step(self) -> int:
        """No kept record belongs to an earlier step."""
        return self._keyframes[0][0]

    # -- finding ------------------------------------------------------------------------------

    @property
    def first_step(self) -> int | None:
        """The oldest step kept."""
        return self.steps[0] if self.steps else None

    @property
    def last_step(self) -> int | None:
        """The newest step."""
        return self.steps[-1] if self.steps else None

    def __contains__(self, step: int) -> bool:
        place = bisect_left(self.steps, step)
        return place < len(self.steps) and self.steps[place] == step

    def moment(self, step: int) -> Moment:
        """Everything about a kept step.

        Raises:
            KeyError: it is not kept, or never was.
        """
        stretch = self._stretch_of(step)
        end = stretch.end_of(step)
        if self._moment is not None and self._moment[:2] == (step, end):
            return self._moment[2]
        place = stretch.place_of(step)
        record = stretch.records[place]
        assert isinstance(record, StepRecord)
        figures = self._figures(step)
        if end > place + 1:
            # What followed without a step belongs to this one; the fold itself stays right after the step.
            figures = figures.copy()
            for late in stretch.records[place + 1 : end]:
                figures.apply(late)
        moment = Moment(record, stretch.records[:end], stretch, figures.snapshot(), figures.current_run)
        self._moment = (step, end, moment)
        return moment

    def _stretch_of(self, step: int) -> Stretch:
        if step in self:
            for stretch in reversed(self.stretches):
                if stretch.has_steps and stretch.lanes.first_step <= step:
                    return stretch
        raise KeyError(step)

    def _figures(self, step: int) -> Metrics:
        """The fold right after a step's record. It stays, so the next step costs one record."""
        place = bisect_right(self._keyframes, step, key=lambda frame: frame[0]) - 1
        start, figures = self._keyframes[place]
        if self._folded is not None and start <= self._folded[0] <= step:
            start, figures = self._folded
        else:
            figures = figures.copy()
        for record in self._between(start, step):
            figures.apply(record)
        self._folded = (step, figures)
        return figures

    def _between(self, start: int, stop: int) -> Iterator[Record]:
        """The records after step `start`'s own, up to step `stop`'s own."""
        for stretch in self.stretches:
            for number in range(stretch.place_of(start), len(stretch.records)):
                record = stretch.records[number]
                if isinstance(record, StepRecord):
                    if record.step > stop:
                        return
                    if record.step > start:
                        yield record
                    if record.step == stop:
                        return
                else:
                    yield record


def _step_of(record: Record) -> int:
    return record.step


def _is_telling(record: StepRecord, before: StepRecord | None) -> bool:
    """Whether a step is one to stop at: somebody entered, ended or gave way, or a setting changed."""
    events = record.events
    if events.admitted or events.finished or events.preempted or events.barrier or record.failed:
        return True
    if before is None:
        return True
    return (record.mode, record.policy, record.max_num_seqs) != (
        before.mode,
        before.policy,
        before.max_num_seqs,
    )
