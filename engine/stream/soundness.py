"""Whether a record that was read can be one of the stream before it: what its readers rely on, and no more.

A file may be anything. Readers fold records without looking twice, so what would break them (somebody whom
no record introduced, tokens outside the step's tensor, a count no engine reaches) is found here first.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.stream.records import Events, Record, Segment, StepRecord

#: No step is wider, and no engine has more slots or blocks; drawing takes time in proportion.
_MOST = 1 << 30


class Soundness:
    """Looks at the records of one stream, in order."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._step = 0

    def flaw(self, record: Record) -> str:
        """Why a record cannot follow those before it, in a few words; empty: it can, and counts as read."""
        if record.step < self._step:
            return f"step {record.step} after step {self._step}"
        submitted = {request.request_id for request in record.events.submitted}
        strangers = sorted(set(_named(record)) - self._known - submitted)
        if strangers:
            return f"no line before introduces a request {strangers[0]!r}"
        if isinstance(record, StepRecord) and (flaw := _step_flaw(record)):
            return flaw
        self._known |= submitted
        self._step = record.step
        return ""


def _named(record: Record) -> Iterator[str]:
    """The requests a record speaks of."""
    events: Events = record.events
    for group in (events.admitted, events.preempted, events.finished, events.released):
        yield from (one.request_id for one in group)
    if isinstance(record, StepRecord):
        yield from (segment.request_id for segment in record.segments)
        yield from (slot.request_id for slot in record.slots)
        yield from (waiting.request_id for waiting in record.waiting)


def _step_flaw(record: StepRecord) -> str:
    limits = (record.max_num_seqs, record.max_num_batched_tokens, record.num_blocks, record.num_keys)
    if not all(0 <= number <= _MOST for number in (*record.shape, *limits, record.waiting_count)):
        return "a number is out of range"
    return next((flaw for segment in record.segments if (flaw := _segment_flaw(segment, record))), "")


def _segment_flaw(segment: Segment, record: StepRecord) -> str:
    rows, columns = record.shape
    is_inside = (
        0 <= segment.row < rows and segment.q_start >= 0 and segment.q_start + segment.q_len <= columns
    )
    has_keys = segment.kv_start >= 0 and segment.q_len <= segment.kv_len <= _MOST
    if segment.q_len < 1 or not is_inside or not has_keys or segment.slot < 0 or segment.position < 0:
        return f"the tokens of {segment.request_id!r} lie outside the step"
    if len(segment.token_ids) != segment.q_len:
        return f"{len(segment.token_ids)} tokens of {segment.request_id!r} where {segment.q_len} were fed"
    drafts = segment.drafts
    if drafts is not None and not 0 <= drafts.used <= drafts.accepted <= drafts.fed < segment.q_len:
        return f"the drafts of {segment.request_id!r} do not add up"
    return ""
