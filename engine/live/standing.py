"""How an engine stands after records of it were read: for readers of a stream whose engine is elsewhere.

Pure. A recording and an observed server share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from engine.config import SLOT_LIMIT, ConfigError, EngineConfig
from engine.stream.records import QuietRecord, SlotRecord, StepRecord, WaitingRecord


class Standing(NamedTuple):
    """Who is in a slot and who waits, as `EngineState` has it."""

    slots: tuple[SlotRecord, ...] = ()
    waiting_count: int = 0
    waiting: tuple[WaitingRecord, ...] = ()


def standing_after(last: StepRecord | None, late: Sequence[QuietRecord]) -> Standing:
    """How things stand after a step and the changes since."""
    gone = {release.request_id for release in last.events.released} if last else set()
    waiting = list(last.waiting) if last else []
    count = last.waiting_count if last else 0
    for quiet in late:
        gone |= {release.request_id for release in quiet.events.released}
        ended = {finish.request_id for finish in quiet.events.finished}
        new = [r for r in quiet.events.submitted if r.request_id not in ended]
        count += len(new) - sum(one.request_id in ended for one in waiting)
        waiting = [one for one in waiting if one.request_id not in ended]
        waiting += [WaitingRecord(request.request_id, "next_step") for request in new]
    slots = tuple(slot for slot in last.slots if slot.request_id not in gone) if last else ()
    return Standing(slots, count, tuple(waiting))


def config_of(record: StepRecord, before: EngineConfig) -> EngineConfig:
    """The limits a step ran under; those the record does not know, and all it cannot have, as before."""
    try:
        return msgspec.structs.replace(
            before,
            mode=record.mode,
            policy=record.policy,
            max_num_seqs=min(record.max_num_seqs, SLOT_LIMIT) or before.max_num_seqs,
            max_num_batched_tokens=record.max_num_batched_tokens or before.max_num_batched_tokens,
            num_blocks=record.num_blocks or before.num_blocks,
        )
    except ConfigError:  # recorded by an engine with other limits than this one's
        return before
