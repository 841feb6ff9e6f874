"""From the lines of a recording vLLM to the records an engine of ours would leave. Pure.

A step's record is made when its tokens are there; a server that schedules ahead has later steps waiting
behind it. What the lines do not say is said in `vllm_facts.provenance_of`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import msgspec

from engine.attach.vllm_facts import figures_of, mode_of
from engine.attach.vllm_lines import (
    Arrived,
    Cost,
    Ended,
    Fault,
    Header,
    Key,
    Line,
    Lost,
    Output,
    Prompt,
    Scheduled,
)
from engine.attach.vllm_requests import Blocks, Followed, Lanes
from engine.attach.vllm_steps import lacking, row_order, segments_of, slots_of
from engine.attach.vllm_waiting import waiting_records
from engine.stream.records import (
    UNKNOWN_TOKEN,
    Admission,
    Events,
    Finish,
    Preemption,
    QuietRecord,
    Record,
    Release,
    RequestRecord,
    StepRecord,
)

#: vLLM's reasons in the records' words; others stand as they are.
_REASONS = {"repetition": "stop"}


@dataclass(slots=True)
class _Pending:
    """What happened since the last step's record and goes into the next."""

    preempted: list[Preemption] = field(default_factory=list)
    finished: list[Finish] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class VllmFold:
    """Takes lines one by one. Also over a loss and a return, and over a new start of the server.

    Args:
        token_bytes: bytes of a token id; None: the tokenizer is not at hand.
    """

    def __init__(self, token_bytes: Callable[[int], bytes] | None = None) -> None:
        self._token_bytes = token_bytes
        self._seen_tokens: set[int] = set()
        self._header: Header | None = None
        self._zero_s: float | None = None
        #: Added to the server's step numbers: those of servers before it.
        self._offset = 0
        self._step = 0
        self._end_s = 0.0
        self._requests: dict[int, Followed] = {}
        self._num_arrived = 0
        self._lanes = Lanes()
        self._blocks = Blocks()
        self._scheduled: deque[tuple[Scheduled, int]] = deque()
        self._rows: tuple[tuple[int, int, int], ...] = ()
        self._queue: tuple[tuple[int, str], ...] = ()
        #: Requests that arrived, in order; the second of `_scheduled` is how many there were then.
        self._arrivals: list[int] = []
        self._pending = _Pending()
        #: Requests ended from outside while a step with them is under way, and why.
        self._stopped: dict[int, str] = {}
        #: Why the next keyframe is needed; else they only repeat what is known.
        self._lacks: Literal["", "beginning", "lines"] = "beginning"

    def take(self, line: Line) -> list[Record]:
        """The records a line completes."""
        match line:
            case Header():
                return self._begin(line)
            case Key():
                return self._take_key(line)
            case Arrived():
                self._follow_on()
                return self._arrive([line])
            case Prompt(number, ids):
                if number in self._requests:
                    request = self._requests[number]
                    request.tokens[: request.num_prompt] = ids
            case Scheduled():
                self._follow_on()
                self._scheduled.append((self._with_rows(line), len(self._arrivals)))
            case Output():
                return self._take_output(line)
            case Ended(time_s, ends):
                return self._end_outside(time_s, ends)
            case Cost():
                return self._say(line.t, figures=figures_of(line))
            case Lost(count):
                self._lacks = "lines"
                self._pending.errors.append(f"{count:,} lines of the stream were lost")
            case Fault(what=what):
                self._lacks = "lines"
                self._pending.errors.append(f"the recorder in the server failed: {what}")
        return []

    def take_index(self) -> int:
        """The next arrival number."""
        index, self._num_arrived = self._num_arrived, self._num_arrived + 1
        return index

    def _follow_on(self) -> None:
        """A stream that begins without a keyframe begins with an empty server: a file does."""
        if self._lacks == "beginning":
            self._lacks = ""

    # -- beginnings ---------------------------------------------------------------------------

    def _begin(self, header: Header) -> list[Record]:
        before, self._header = self._header, header
        self._lacks = "beginning"
        self._scheduled.clear()
        if before is None or before.pid == header.pid:
            return []
        self._offset = self._step
        return self._forget(list(self._requests.values()), header.t, "the server was started anew")

    def _take_key(self, key: Key) -> list[Record]:
        """Begin from what is alive, if something is missing."""
        if not self._lacks:
            return []
        self._lacks = ""
        self._scheduled.clear()
        self._stopped.clear()
        alive = {line.id for line in key.requests}
        known = {request.request_id: request for request in self._requests.values()}
        gone = [request for request in known.values() if request.request_id not in alive]
        records = self._forget(gone, key.t, "it ended while the stream was interrupted")
        self._blocks.clear()
        self._lanes.clear()
        self._requests.clear()
        self._arrivals.clear()
        fresh = []
        for line in key.requests:
            request = self._requests[line.r] = known.get(line.id) or self._followed(line)
            if not request.is_known:
                fresh.append(line)
            request.tokens = [*_prompt_of(line), *line.out]
            request.computed = line.at
            request.high_water = max(request.high_water, line.at)
            request.table = list(line.table)
            self._blocks.hold(line.table)
            if request.lane is not None and line.on:
                request.lane = self._lanes.take(request.lane)
            elif not line.on and request.lane is not None:
                records += self._say(key.t, released=(Release(line.id, request.lane),))
                request.lane = None
        self._blocks.take_moves()
        self._queue = key.waiting
        return records + self._arrive(fresh)

    def _forget(self, gone: Sequence[Followed], time_s: float, why: str) -> list[Record]:
        """End requests nobody saw the end of."""
        for number, request in list(self._requests.items()):
            if request in gone:
                self._finish(number, "error", self._clock(time_s), why)
        return self._flush_ends(time_s)

    def _followed(self, line: Arrived) -> Followed:
        return Followed(line.id, [*_prompt_of(line), *line.out], line.len, line.max)

    def _arrive(self, lines: Iterable[Arrived]) -> list[Record]:
        submitted, time_s = [], 0.0
        for line in lines:
            request = self._requests.setdefault(line.r, self._followed(line))
            if request.is_known:
                continue
            request.is_known = True
            self._arrivals.append(line.r)
            time_s = line.t
            submitted.append(self._request_record(line, request))
        if not submitted:
            return []
        ids = [token for request in submitted for token in request.prompt_token_ids + request.made_before]
        return self._say(time_s, submitted=tuple(submitted), tokens=self._new_tokens(ids))

    def _request_record(self, line: Arrived, request: Followed) -> RequestRecord:
        ids = tuple(request.tokens[: request.num_prompt])
        return RequestRecord(
            request.request_id,
            self.take_index(),
            ids,
            self._text(ids),
            request.max_tokens,
            self._clock(line.t),
            line.temperature,
            line.seed or 0,
            line.ignore_eos,
            top_k=max(0, line.top_k),
            top_p=line.top_p,
            priority=line.priority,
            made_before=line.out,
        )

    # -- steps --------------------------------------------------------------------------------

    def _with_rows(self, line: Scheduled) -> Scheduled:
        """A line whose rows go on from the last one's, with them."""
        if line.n and not line.rows:
            line = msgspec.structs.replace(
                line, rows=tuple((number, 1, start + count) for number, count, start in self._rows)
            )
        self._rows = line.rows
        return line

    def _take_output(self, line: Output) -> list[Record]:
        while self._scheduled:
            scheduled, num_arrived = self._scheduled.popleft()
            if scheduled.n == line.n and line.tok:
                numbers = [number for number, _, _ in scheduled.rows]
                out = tuple((number, (token,)) for number, token in zip(numbers, line.tok, strict=False))
                line = msgspec.structs.replace(line, out=out)
            self._move(scheduled, self._clock(scheduled.t))
            if scheduled.n == line.n:
                if self._knows_all(scheduled):
                    return [self._record(scheduled, line, num_arrived)]
                break
        # A step before the keyframe this began with: only its tokens count.
        for number, tokens in line.out:
            if number in self._requests:
                self._requests[number].tokens += tokens
        for number, reason in line.end:
            self._finish(number, reason, self._clock(line.t + line.d))
        return self._flush_ends(line.t + line.d)

    def _knows_all(self, scheduled: Scheduled) -> bool:
        return all(number in self._requests for number, _, _ in scheduled.rows)

    def _move(self, scheduled: Scheduled, time_s: float) -> None:
        """Preemptions and block tables, as the step was scheduled."""
        for number in scheduled.pre:
            request = self._requests.get(number)
            if request is None or request.lane is None:
                continue
            self._pending.preempted.append(
                Preemption(request.request_id, request.lane, request.computed, "kv_blocks")
            )
            self._lanes.leave(request.lane)
            self._blocks.release(request.table)
            request.lane, request.computed, request.table = None, 0, []
        for number, table in scheduled.tables.items():
            if (request := self._requests.get(number)) is not None:
                self._blocks.hold(table)
                self._blocks.release(request.table)
                request.table = list(table)
        for number, more in scheduled.more.items():
            if (request := self._requests.get(number)) is not None:
                self._blocks.hold(more)
                request.table += more
        if scheduled.q is not None:
            self._queue = scheduled.q

    def _record(self, scheduled: Scheduled, line: Output, num_arrived: int) -> StepRecord:
        assert self._header is not None
        header = self._header
        before, self._pending = self._pending, _Pending()
        step = self._offset + scheduled.n
        missed = step - self._step - 1 if self._step else 0
        start_s = max(self._clock(scheduled.t), self._end_s)
        end_s = max(self._clock(line.t + line.d), start_s)
        order = row_order(scheduled, line.order)
        sampled = {number: tokens for number, tokens in line.out if tokens and number in self._requests}
        admitted = self._admit(order, scheduled)
        segments, counts = segments_of(order, scheduled, self._requests, sampled)
        for number, tokens in sampled.items():
            self._requests[number].tokens += tokens
        slots = slots_of(self._requests.values())
        self._step, self._end_s = step, end_s
        for number, reason in (*line.end, *self._stopped_in(scheduled)):
            self._finish(number, reason, end_s)
        after, self._pending = self._pending, _Pending()
        late = self._late(num_arrived)
        allocated, freed, shared = self._blocks.take_moves()
        computed = sum(one.computed for one in self._requests.values() if one.lane is not None)
        ids = [*chain.from_iterable(segment.token_ids for segment in segments)]
        ids += chain.from_iterable(sampled.values())
        return StepRecord(
            step=step,
            epoch=0,
            mode=mode_of(header),
            policy=header.policy,
            layout="ragged",
            start_s=start_s,
            end_s=end_s,
            shape=(1, counts.total),
            num_keys=sum(segment.kv_len for segment in segments),
            tokens=counts,
            max_num_batched_tokens=header.max_num_batched_tokens,
            max_num_seqs=header.max_num_seqs,
            segments=segments,
            slots=slots,
            waiting_count=scheduled.wait + len(late),
            waiting=waiting_records(
                self._queue,
                late,
                self._requests,
                lacking(scheduled, header),
                max(0, header.max_num_seqs - scheduled.run),
            ),
            free_blocks=line.free,
            num_blocks=header.num_blocks,
            kv_tokens=max(0, computed - self._blocks.num_shared_again * header.block_size),
            events=Events(
                admitted=admitted,
                preempted=tuple(before.preempted),
                finished=(*before.finished, *after.finished),
                released=(*before.released, *after.released),
                blocks_allocated=allocated,
                blocks_freed=freed,
                blocks_shared=shared,
                tokens=self._new_tokens(ids),
                errors=tuple(before.errors),
            ),
            schedule_s=scheduled.d,
            forward_s=max(0.0, self._clock(line.t) - max(start_s, self._clock(scheduled.t) + scheduled.d)),
            missed=missed,
        )

    def _late(self, num_arrived: int) -> list[int]:
        """Who came while a step ran, and waits behind those the server looked at."""
        late = [number for number in self._arrivals[num_arrived:] if number in self._requests]
        del self._arrivals[:num_arrived]
        self._scheduled = deque((one, max(0, count - num_arrived)) for one, count in self._scheduled)
        return late

    def _admit(self, order: Sequence[int], scheduled: Scheduled) -> tuple[Admission, ...]:
        starts = {number: start for number, _, start in scheduled.rows}
        admitted = []
        for place, number in enumerate(order):
            request = self._requests[number]
            if request.lane is not None:
                continue
            request.lane = self._lanes.take(place)
            start = starts[number]
            # Followed from the middle, it was fed before: that is no prefix hit.
            cached = start if start != request.computed else 0
            admitted.append(Admission(request.request_id, request.lane, request.has_run, cached))
            request.has_run = True
        return tuple(admitted)

    # -- ends ---------------------------------------------------------------------------------

    def _finish(self, number: int, reason: str, time_s: float, error: str = "") -> None:
        request = self._requests.pop(number, None)
        if request is None:
            return
        pending = self._pending
        if request.is_known:
            pending.finished.append(
                Finish(
                    request.request_id,
                    _REASONS.get(reason, reason),
                    request.lane,
                    request.num_outputs,
                    time_s,
                    error,
                )
            )
        if request.lane is not None:
            pending.released.append(Release(request.request_id, request.lane))
            self._lanes.leave(request.lane)
        self._blocks.release(request.table)

    def _end_outside(self, time_s: float, ends: Sequence[tuple[int, str]]) -> list[Record]:
        for number, reason in ends:
            if any(_is_in(number, scheduled) for scheduled, _ in self._scheduled):
                self._stopped[number] = reason  # the step that feeds it is under way, and tells
            else:
                self._finish(number, reason, self._clock(time_s))
        return self._flush_ends(time_s)

    def _stopped_in(self, scheduled: Scheduled) -> list[tuple[int, str]]:
        """Requests ended from outside that are in this step and in none after it."""
        later = [one for one, _ in self._scheduled]
        return [
            (number, self._stopped.pop(number))
            for number in list(self._stopped)
            if _is_in(number, scheduled) and not any(_is_in(number, one) for one in later)
        ]

    def _flush_ends(self, time_s: float) -> list[Record]:
        pending = self._pending
        if not (pending.finished or pending.released):
            return []
        finished, released = tuple(pending.finished), tuple(pending.released)
        pending.finished, pending.released = [], []
        return self._say(time_s, finished=finished, released=released)

    # -- words and times ----------------------------------------------------------------------

    def _say(self, time_s: float, **events: object) -> list[Record]:
        return [QuietRecord(self._step, self._clock(time_s), Events(**events))]  # type: ignore[arg-type]

    def _clock(self, time_s: float) -> float:
        if self._zero_s is None:
            self._zero_s = time_s
        return round(time_s - self._zero_s, 6)

    def _new_tokens(self, ids: Iterable[int]) -> tuple[tuple[int, bytes], ...]:
        if self._token_bytes is None:
            return ()
        fresh = {token for token in ids if token not in self._seen_tokens and token >= 0}
        self._seen_tokens |= fresh
        return tuple((token, self._token_bytes(token)) for token in sorted(fresh))

    def _text(self, ids: Sequence[int]) -> str:
        if self._token_bytes is None:
            return ""
        return b"".join(self._token_bytes(token) for token in ids if token >= 0).decode("utf-8", "replace")


def _prompt_of(line: Arrived) -> tuple[int, ...]:
    return line.prompt or (UNKNOWN_TOKEN,) * line.len


def _is_in(number: int, scheduled: Scheduled) -> bool:
    return any(row[0] == number for row in scheduled.rows)
