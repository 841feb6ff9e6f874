"""How long a request waits is counted from what made it wait: its arrival, or the step it gave way in."""

from __future__ import annotations

import pytest

from cbtui.export.page_data import page_data
from cbtui.export.run import recorded_run
from engine.attach.recordings import read_recording
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord, TraceHeader
from engine.stream.trace_files import read_trace
from tests.app.replay import DATA


def recordings() -> dict[str, tuple[TraceHeader, list[Record]]]:
    own, vllm = read_trace(DATA / "trace-preempted.jsonl"), read_recording(DATA / "attach/vllm-pressed.jsonl")
    return {"own": (own.header, list(own.records)), "vllm": (vllm.header, list(vllm.records))}


@pytest.mark.parametrize("name", ["own", "vllm"])
def test_who_gave_way_waits_since_then(name: str) -> None:
    header, records = recordings()[name]
    ledger, last_fed, seen = Ledger(), dict[str, int](), 0
    for record in records:
        ledger.apply(record)
        if not isinstance(record, StepRecord):
            continue
        last_fed |= {segment.request_id: record.step for segment in record.segments}
        for one in record.waiting:
            since = ledger[one.request_id].waits_since(record.step)
            if one.preempted:
                seen += 1
                assert since == last_fed[one.request_id]
            else:
                assert since == ledger[one.request_id].submitted_step
    assert seen
    run = recorded_run(header, records)
    waiting = [pair for row in page_data(run)["steps"] for pair in (row[13] or [])]
    assert any(since > run.stories[number].submitted_step for number, _, since in waiting)
