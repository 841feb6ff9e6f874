"""What plays while the model loads: the tutorial's beginning, recorded on the default model. Pure.

The panels get its frames and say RECORDED; nothing of it ever reaches the engine.
"""

from __future__ import annotations

from pathlib import Path

from cbtui.following.follower import Follower
from cbtui.following.frame import Frame
from engine.config import EngineConfig
from engine.live.channels import History, Mailbox
from engine.live.state import EngineState
from engine.runner import ModelInfo
from engine.stream.records import StepRecord, TraceHeader
from engine.stream.trace import read_header, read_records

TRACE = Path(__file__).with_name("recorded") / "tutorial.jsonl"
#: Seconds between two of its steps.
STEP_EVERY_S = 0.3
#: Seconds after which it begins, if the model is not there by then: a flash of it would only confuse.
BEGIN_AFTER_S = 0.8


def read_trace() -> tuple[TraceHeader, list[StepRecord]]:
    """The recorded steps."""
    with TRACE.open("rb") as file:
        header = read_header(file)
        return header, [record for record in read_records(file) if isinstance(record, StepRecord)]


class Recorded:
    """Plays the trace over and over, a step at a time, through a mailbox and a history of its own."""

    def __init__(self) -> None:
        header, self._records = read_trace()
        self._model = ModelInfo(
            name=header.model, source=header.model, device=header.device, dtype=header.dtype
        )
        self._next = 0
        self._begin()

    def _begin(self) -> None:
        self._mailbox, self._history = Mailbox(), History()
        self._follower = Follower(self._mailbox, self._history)
        self._next = 0

    @property
    def step(self) -> int:
        """The step shown."""
        return self._next

    def advance(self) -> None:
        """The next step; after the last one it begins again."""
        if self._next == len(self._records):
            self._begin()
        record = self._records[self._next]
        self._next += 1
        self._history.append(record)
        self._mailbox.publish(self._state(record))
        self._follower.poll()

    def frame(self) -> Frame:
        """The picture of the step."""
        return self._follower.frame()

    def _state(self, record: StepRecord) -> EngineState:
        freed = {release.slot for release in record.events.released}
        return EngineState(
            version=self._next,
            status="running",
            model=self._model,
            mode=record.mode,
            config=EngineConfig(
                mode=record.mode,
                max_num_seqs=record.max_num_seqs,
                max_num_batched_tokens=record.max_num_batched_tokens,
            ),
            step=record.step,
            time_s=record.end_s,
            slots=tuple(slot for slot in record.slots if slot.slot not in freed),
            waiting_count=record.waiting_count,
            waiting=record.waiting,
            num_records=self._history.total,
        )
