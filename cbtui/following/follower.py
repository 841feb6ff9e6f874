"""Follows an engine from outside: takes the newest state and the records since, folds them, makes frames.

Pure of widgets, threads and clocks. Whoever drives it decides when to look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cbtui.drawing.slot_history import SlotHistory
from cbtui.following.chronicle import Chronicle
from cbtui.following.frame import Frame
from cbtui.telling.naming import Badges
from cbtui.telling.run_result import twin_of
from cbtui.telling.words import count
from engine.live.channels import History, Mailbox
from engine.live.state import EngineState, Failure
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics, MetricsSnapshot, RunSummary
from engine.stream.records import Record, StepRecord

#: Finished runs whose timelines are kept, to be shown beside a later one.
RUNS_KEPT = 8


@dataclass(frozen=True, slots=True)
class PastRun:
    """A finished run and what every slot did in it."""

    summary: RunSummary
    lanes: SlotHistory


class Follower:
    """Reads a mailbox and a history; `poll` when there may be news, then `frame`.

    Args:
        stories: finished requests whose stories are kept, where no kept record needs more; None: all.
    """

    def __init__(self, mailbox: Mailbox, history: History, stories: int | None = None) -> None:
        self._mailbox = mailbox
        self._history = history
        self._seen = 0
        self._unfinished: set[str] = set()
        self._fault: Failure | None = None
        self._stuck = ""
        self.ledger = Ledger(stories)
        self.badges = Badges()
        self.chronicle = Chronicle(self.ledger, history.limit)
        self.state: EngineState = mailbox.latest()
        self.record: StepRecord | None = None
        #: Records that were dropped from the history before they were read.
        self.num_missed = 0
        #: While the engine is empty: the last run, and the same requests' run in another mode before it.
        self.last_run: PastRun | None = None
        self.twin: PastRun | None = None
        self._past: deque[PastRun] = deque(maxlen=RUNS_KEPT)
        self._snapshot: MetricsSnapshot = self.metrics.snapshot()
        self._run: RunSummary | None = None
        self._take_records()

    @property
    def metrics(self) -> Metrics:
        """Figures after the newest record."""
        return self.chronicle.metrics

    @property
    def records(self) -> Sequence[Record]:
        """Records since the engine was last empty, as far as they are kept. A new run begins a new list."""
        return self.chronicle.stretch.records

    @property
    def num_unfinished(self) -> int:
        """Requests known from the records that have not ended."""
        return len(self._unfinished)

    @property
    def unfinished(self) -> frozenset[str]:
        return frozenset(self._unfinished)

    def poll(self) -> bool:
        """Take in what is new; whether anything was."""
        state = self._mailbox.latest()
        if state.version == self.state.version and self._history.total == self._seen:
            return False
        self.state = self._with_fault(state)
        self._take_records()
        return True

    def engine_broke(self, message: str) -> None:
        """The engine's thread ended by a fault of its own: show it as a failure, not as silence."""
        self._fault = Failure("engine", message)
        self.state = self._with_fault(self._mailbox.latest())

    def engine_is_stuck(self, words: str) -> bool:
        """What the engine's thread is stuck in, a sentence; empty: it gets on. Whether that is news."""
        if words == self._stuck:
            return False
        self._stuck = words
        self.state = self._with_fault(self._mailbox.latest())
        return True

    def frame(self, selected: str | None = None, step: int | None = None) -> Frame:
        """The newest picture; with `step`, that of a recorded step.

        Raises:
            KeyError: the step is not kept.
        """
        if step is not None:
            return self._past_frame(selected, step)
        return Frame(
            state=self.state,
            record=self.record,
            is_live=True,
            records=self.records,
            ledger=self.ledger,
            badges=self.badges,
            metrics=self._snapshot,
            runs=self.metrics.runs,
            run=self._run,
            selected=selected,
            lanes=self.chronicle.stretch.lanes,
        )

    def _past_frame(self, selected: str | None, step: int) -> Frame:
        moment = self.chronicle.moment(step)
        return Frame(
            state=self.state,
            record=moment.record,
            is_live=False,
            records=moment.records,
            ledger=self.ledger,
            badges=self.badges,
            metrics=moment.metrics,
            runs=[run for run in self.metrics.runs if run.last_step <= step],
            run=moment.run,
            selected=selected,
            lanes=moment.stretch.lanes,
        )

    def _with_fault(self, state: EngineState) -> EngineState:
        if self._stuck:
            state = msgspec.structs.replace(state, stuck=self._stuck)
        if self._fault is None or state.failure is not None:
            return state
        return msgspec.structs.replace(state, status="failed", failure=self._fault)

    def _take_records(self) -> None:
        first, records = self._history.since(self._seen)
        self.num_missed += first - self._seen
        self._seen = first + len(records)
        for record in records:
            self._take(self._without_strangers(record) if self.num_missed else record)
        if records:
            self._snapshot = self.metrics.snapshot()
            self._run = self.metrics.current_run
            self._compare()
            self.badges.forget(self.ledger.forget(self.chronicle.oldest_step))

    def _take(self, record: Record) -> None:
        submitted = record.events.submitted
        if submitted and not self._unfinished and self.chronicle.stretch.has_steps:
            self.chronicle.begin_stretch()
        self._unfinished.update(request.request_id for request in submitted)
        self.ledger.apply(record)
        self.badges.apply(record)
        num_runs = self.metrics.num_runs
        self.chronicle.append(record)
        self._unfinished.difference_update(finish.request_id for finish in record.events.finished)
        if isinstance(record, StepRecord):
            self.record = record
        if self.metrics.num_runs > num_runs:
            self._past.append(PastRun(self.metrics.runs[-1], self.chronicle.stretch.lanes))

    def _compare(self) -> None:
        self.last_run = self.twin = None
        if self._run is not None or self._unfinished or not self._past:
            return
        self.last_run = self._past[-1]
        twin = twin_of(self.last_run.summary, [past.summary for past in self._past])
        self.twin = next((past for past in self._past if past.summary is twin), None)

    def _without_strangers(self, record: Record) -> Record:
        """A record without the requests whose arrival was dropped before it was read (the program was
        stopped for long): nothing can be said about them."""
        known = set(self.ledger.stories) | {r.request_id for r in record.events.submitted}
        events = record.events
        kept = msgspec.structs.replace(
            events,
            admitted=_of(known, events.admitted),
            preempted=_of(known, events.preempted),
            finished=_of(known, events.finished),
            released=_of(known, events.released),
            verified=_of(known, events.verified),
        )
        if not isinstance(record, StepRecord):
            return msgspec.structs.replace(record, events=kept)
        return msgspec.structs.replace(
            record,
            events=kept,
            segments=_of(known, record.segments),
            slots=_of(known, record.slots),
            waiting=_of(known, record.waiting),
        )


def went_unseen(num_records: int) -> str:
    """What a person is told of records that were dropped before they were read."""
    return f"held up for too long: {count(num_records, 'record')} went by unseen (--history keeps more)"


def _of(known: set[str], items: Sequence) -> tuple:  # type: ignore[type-arg]  # any record with a request_id
    return tuple(item for item in items if item.request_id in known)
