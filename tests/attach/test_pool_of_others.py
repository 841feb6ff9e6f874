"""vLLM's null block is in its pool and is never given out: every count of blocks leaves it out."""

from __future__ import annotations

from itertools import count

import pytest

from cbtui.drawing.kv_blocks import RESERVED, PoolDrawing
from cbtui.export.page_data import page_data
from cbtui.export.run import recorded_run
from cbtui.following.follower import Follower
from cbtui.looks.pieces import plain
from engine.attach.recordings import read_recording
from engine.attach.seen import StepSeen
from engine.attach.seen_records import SeenRecords
from engine.live.channels import History, Mailbox
from engine.stream.records import StepRecord
from tests.app.replay import DATA, state_after

PATH = DATA / "attach" / "vllm-pressed.jsonl"


@pytest.mark.parametrize("number", [5, 30, 60])
def test_all_who_count_blocks_of_a_recording_agree(number: int) -> None:
    trace = read_recording(PATH)
    upto = [record for record in trace.records if record.step <= number]
    last = next(one for one in reversed(upto) if isinstance(one, StepRecord))
    history = History(10_000)
    for record in upto:
        history.append(record)
    state = state_after(last, provenance=trace.header.provenance, num_records=history.total)
    frame = Follower(Mailbox(state), history, 100).frame(None, None)
    used = {block for segment in last.segments for block in segment.block_ids}
    pool = last.num_blocks - 1
    assert last.reserved_blocks == 1 and 0 not in used
    drawing = PoolDrawing(frame, 100)
    assert plain(drawing.head[0]).startswith(f"{len(used)} of {pool} blocks in use")
    assert plain(drawing.line(len(drawing.head))).split()[1].startswith(RESERVED)
    ended = {one.request_id for one in last.events.released}
    if not ended:
        assert last.free_blocks == pool - len(used)
        assert frame.metrics.kv_cache_usage == pytest.approx(len(used) / pool)
    row = page_data(recorded_run(trace.header, upto))["steps"][-1]
    assert row[10:12] == [pool - last.free_blocks, pool]


def test_a_share_that_vllms_metrics_tell_is_of_the_blocks_it_gives_out() -> None:
    (record,) = SeenRecords(count()).records(StepSeen(0.0, 1.0), 3, pool=(11, 0.7), reserved_blocks=1)
    assert isinstance(record, StepRecord)
    assert (record.free_blocks, record.kv_cache_usage) == (3, pytest.approx(0.7))


def test_without_a_pool_nothing_of_it_is_in_use() -> None:
    (record,) = SeenRecords(count()).records(StepSeen(0.0, 1.0), 3)
    assert isinstance(record, StepRecord)
    assert (record.reserved_blocks, record.free_blocks, record.kv_cache_usage) == (0, 0, 0.0)
