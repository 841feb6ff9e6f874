"""What every slot did in every step of a stretch, kept as runs, and folded into columns of several steps.

Pure; fed one record at a time. A step costs O(slots) and memory follows the changes, not the steps, so a
stretch of a hundred thousand steps redraws from a few thousand runs. What is older than the steps one can
still go back to becomes coarser as it grows: short runs give way to their longer neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.stream.records import Record, StepRecord

StateKind = Literal["prefill", "decode", "dead", "idle"]
#: Which state a column shows when two are equally common: the useful one.
_RANK: dict[StateKind, int] = {"prefill": 3, "decode": 2, "dead": 1, "idle": 0}


#: Runs of a slot that what is long past may take: some for every column of the widest timeline.
MOST_RUNS = 512


class State(NamedTuple):
    """What a slot did in a step, and for whom (empty: nobody)."""

    kind: StateKind
    request_id: str = ""


IDLE = State("idle")


class Mark(NamedTuple):
    """Something that concerns all slots: a mode in force from `step` on, or a wave that ended in it."""

    step: int
    kind: Literal["mode", "barrier"]
    text: str


@dataclass(slots=True)
class _Slot:
    """Run i has state `states[i]` from step `starts[i]` to the next run's start.

    `columns` caches those columns of `scale` steps that are complete.
    """

    starts: list[int]
    states: list[State]
    scale: int = 0
    columns: list[State] = field(default_factory=list)


class SlotHistory:
    """The slots over a stretch of consecutive steps."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._slots: list[_Slot] = []
        self.marks: list[Mark] = []
        self._mode = ""
        self.first_step = 0
        #: The newest step taken in; `first_step - 1` before any.
        self.last_step = -1
        for record in records:
            self.apply(record)

    @property
    def num_slots(self) -> int:
        """As many as there ever were at once."""
        return len(self._slots)

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step + 1

    def apply(self, record: Record) -> None:
        """Take a record in; records between steps say nothing here."""
        if not isinstance(record, StepRecord):
            return
        step = record.step
        if self.last_step < 0:
            self.first_step = step
        states = {segment.slot: State(segment.kind, segment.request_id) for segment in record.segments}
        while len(self._slots) < max(record.max_num_seqs, *(slot + 1 for slot in states), 0):
            self._slots.append(_Slot([self.first_step], [IDLE]))
        for number, slot in enumerate(self._slots):
            state = states.get(number, IDLE)
            if slot.states[-1] != state:
                if slot.starts[-1] == step:
                    slot.states[-1] = state
                else:
                    slot.starts.append(step)
                    slot.states.append(state)
        if record.mode != self._mode:
            self._mode = record.mode
            self.marks.append(Mark(step, "mode", record.mode))
        if record.events.barrier:
            self.marks.append(Mark(step, "barrier", "barrier"))
        self.last_step = step

    def coarsen(self, before_step: int) -> None:
        """Let the steps before `before_step` take at most `MOST_RUNS` runs of a slot, and as many marks."""
        for slot in self._slots:
            while (old := bisect_right(slot.starts, before_step) - 1) > MOST_RUNS:
                kept = [
                    (slot.starts[place], max(place, place + 1, key=lambda run: _length(slot.starts, run)))
                    for place in range(0, old - 1, 2)
                ]
                end = 2 * len(kept)
                slot.states[:end] = [slot.states[longer] for _, longer in kept]
                slot.starts[:end] = [start for start, _ in kept]
        old = bisect_right(self.marks, before_step, key=lambda mark: mark.step)
        if old > MOST_RUNS:
            modes = [mark for mark in self.marks[:old] if mark.kind == "mode"]
            self.marks[:old] = modes[-MOST_RUNS // 2 :]

    def states(self, slot: int, start: int, stop: int) -> Iterator[tuple[State, int]]:
        """The runs of a slot within steps [start, stop), each with its number of steps."""
        runs = self._slots[slot]
        number = max(0, bisect_right(runs.starts, start) - 1)
        while number < len(runs.starts) and start < stop:
            end = runs.starts[number + 1] if number + 1 < len(runs.starts) else stop
            end = min(end, stop)
            if end > start:
                yield runs.states[number], end - start
                start = end
            number += 1

    def column(self, slot: int, start: int, stop: int) -> State:
        """One state for steps [start, stop): the last prefill in it, else the commonest."""
        counts: dict[State, int] = {}
        prefill = None
        for state, count in self.states(slot, start, stop):
            if state.kind == "prefill":
                prefill = state
            counts[state] = counts.get(state, 0) + count
        if prefill is not None:
            return prefill
        return max(counts, key=lambda state: (counts[state], _RANK[state.kind]), default=IDLE)

    def columns(self, slot: int, scale: int, last_step: int, first: int = 0) -> list[State]:
        """A slot's columns of `scale` steps, from column `first` (0 begins with the first step) up to
        `last_step`."""
        last_step = min(last_step, self.last_step)
        runs = self._slots[slot]
        if runs.scale != scale:
            runs.scale, runs.columns = scale, []
        complete = (self.last_step - self.first_step + 1) // scale
        for number in range(len(runs.columns), complete):
            start = self.first_step + number * scale
            runs.columns.append(self.column(slot, start, start + scale))
        shown, rest = divmod(last_step - self.first_step + 1, scale)
        cells = runs.columns[first:shown]
        if rest:
            cells.append(self.column(slot, last_step + 1 - rest, last_step + 1))
        return cells


def _length(starts: list[int], run: int) -> int:
    """Steps of a run that is not the last one."""
    return starts[run + 1] - starts[run]


def scale_for(steps: int, columns: int) -> int:
    """Steps a column (1, 2, 4, 8 …) with which `steps` steps fit `columns` columns."""
    scale = 1
    while columns > 0 and -(-steps // scale) > columns:
        scale *= 2
    return scale
