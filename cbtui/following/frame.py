"""What one drawing of the screen is made from: the engine's state, the shown step, and the folds.

Widgets take a `Frame` in `show()` and read nothing else; none of them calls into the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cbtui.drawing.slot_history import SlotHistory
from cbtui.telling.naming import Badges
from engine.live.state import EngineState
from engine.stream.ledger import Ledger
from engine.stream.metrics import MetricsSnapshot, RunSummary
from engine.stream.records import Record, StepRecord


@dataclass(frozen=True, slots=True)
class Frame:
    """One consistent picture.

    Attributes:
        state: the engine now.
        record: the shown step; None before the first.
        is_live: the shown step is the newest one.
        records: records since the engine was last empty, up to the shown one (steps and quiet ones), for the
            events. While live the list grows at its end, and loses its beginning when history is dropped.
        ledger: every request's story; ask it `outputs_at(record.step)`.
        badges: names and colours.
        metrics: counters at the shown step.
        runs: finished runs, oldest first.
        run: the run under way; None when empty.
        selected: request id chosen by the cursor, or None.
        lanes: what every slot did in every step of the shown stretch, steps after the shown one too.
    """

    state: EngineState
    record: StepRecord | None
    is_live: bool
    records: Sequence[Record]
    ledger: Ledger
    badges: Badges
    metrics: MetricsSnapshot
    runs: Sequence[RunSummary]
    run: RunSummary | None
    selected: str | None = None
    lanes: SlotHistory = field(default_factory=SlotHistory)

    @property
    def step(self) -> int:
        """Number of the shown step; 0 before the first."""
        return self.record.step if self.record else 0
