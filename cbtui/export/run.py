"""A recorded run as every format reads it: its records, and what is folded from them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cbtui.telling.naming import Badge, Badges
from engine.step.plan import SegmentKind
from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import Record, StepRecord, TraceHeader


class Stretch(NamedTuple):
    """Neighbouring steps in which a slot did the same for the same request.

    `first` and `last` are places in `RecordedRun.steps`.
    """

    slot: int
    kind: SegmentKind
    request_id: str
    first: int
    last: int


class Mark(NamedTuple):
    """Something that concerns all slots: a mode in force from a place on, or a wave that ended there."""

    place: int
    kind: Literal["mode", "barrier"]
    text: str


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A whole recorded run.

    Attributes:
        header: the model and the engine.
        records: all of them, in order.
        steps: the steps among them.
        ledger: every request's story.
        badges: names and colours.
    """

    header: TraceHeader
    records: tuple[Record, ...]
    steps: tuple[StepRecord, ...]
    ledger: Ledger
    badges: Badges

    @property
    def stories(self) -> list[RequestStory]:
        """Requests in the order they arrived."""
        return self.ledger.in_order

    @property
    def modes(self) -> list[str]:
        """The modes it ran in, each once."""
        return list(dict.fromkeys(step.mode for step in self.steps))

    @property
    def end_s(self) -> float:
        """The engine clock at its end."""
        last = self.records[-1]
        return last.end_s if isinstance(last, StepRecord) else last.time_s

    def badge(self, request_id: str) -> Badge:
        return self.badges[request_id]

    @property
    def num_slots(self) -> int:
        """As many as there ever were at once."""
        used = max((segment.slot + 1 for step in self.steps for segment in step.segments), default=0)
        return max(used, *(step.max_num_seqs for step in self.steps))

    def stretches(self) -> list[Stretch]:
        """What the slots did, slot by slot, in time; idle steps are left out, and so are missed ones."""
        found: list[Stretch] = []
        under_way: dict[int, Stretch] = {}
        for place, step in enumerate(self.steps):
            if step.missed:
                found += under_way.values()
                under_way.clear()
            for segment in step.segments:
                slot, before = segment.slot, under_way.get(segment.slot)
                same = (slot, segment.kind, segment.request_id)
                if before is not None and before[:3] == same and before.last == place - 1:
                    under_way[slot] = before._replace(last=place)
                    continue
                if before is not None:
                    found.append(before)
                under_way[slot] = Stretch(*same, place, place)
        return sorted([*found, *under_way.values()], key=lambda one: (one.slot, one.first))

    def marks(self) -> Iterator[Mark]:
        """Where modes began and waves ended."""
        mode = ""
        for place, step in enumerate(self.steps):
            if step.mode != mode:
                mode = step.mode
                yield Mark(place, "mode", mode)
            if step.events.barrier:
                yield Mark(place, "barrier", "barrier")


def recorded_run(header: TraceHeader, records: Sequence[Record]) -> RecordedRun:
    """Fold a trace.

    Raises:
        ValueError: there is no step in it.
    """
    ledger, badges = Ledger(), Badges()
    for record in records:
        ledger.apply(record)
        badges.apply(record)
    steps = tuple(record for record in records if isinstance(record, StepRecord))
    if not steps:
        raise ValueError("there is no step in the trace")
    return RecordedRun(header, tuple(records), steps, ledger, badges)
