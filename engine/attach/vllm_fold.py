"""From the lines of a recording vLLM to the records an engine of ours would leave. Pure.

A step's record is made when its tokens are there; a server that schedules ahead has later steps waiting
behind it. What the lines do not say is said in `vllm_facts.provenance_of`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Literal

import msgspec

from engine.attach.vllm_alive import Alive
from engine.attach.vllm_facts import NULL_BLOCKS, figures_of, mode_of
from engine.attach.vllm_lines import (
    Arrived,
    Chunk,
    Cost,
    Ended,
    Fault,
    Header,
    Key,
    Line,
    Lost,
    Output,
    Over,
    Prompt,
    Scheduled,
    Standing,
)
from engine.attach.vllm_requests import Followed
from engine.attach.vllm_steps import lacking, rejected_in, row_order, segments_of, slots_of
from engine.attach.vllm_waiting import waiting_records
from engine.stream.records import (
    Events,
    QuietRecord,
    Record,
    RequestRecord,
    StepRecord,
)


class VllmFold:
    """Takes lines one by one. Also over a loss and a return, and over a new start of the server.

    Args:
        token_bytes: bytes of a token id; None: the tokenizer is not at hand.
    """

    def __init__(self, token_bytes: Callable[[int], bytes] | None = None) -> None:
        self._token_bytes = token_bytes
        #: Why nothing more will come; empty: it may.
        self.over = ""
        self._seen_tokens: set[int] = set()
        self._header: Header | None = None
        self._zero_s: float | None = None
        #: Added to the server's step numbers: those of servers before it.
        self._offset = 0
        self._step = 0
        self._end_s = 0.0
        self._alive = Alive()
        #: Requests of the keyframe whose last line is yet to come.
        self._standing: list[Arrived] = []
        self._num_arrived = 0
        self._scheduled: deque[tuple[Scheduled, int]] = deque()
        self._rows: tuple[tuple[int, int, int], ...] = ()
        self._queue: tuple[tuple[int, str], ...] = ()
        #: Requests that arrived, in order; the second of `_scheduled` is how many there were then.
        self._arrivals: list[int] = []
        #: What went wrong since the last step's record.
        self._errors: list[str] = []
        #: Requests ended from outside while a step with them is under way, and why.
        self._stopped: dict[int, str] = {}
        #: Requests no record has told of yet: those of a keyframe wait for what earlier steps make of them.
        self._untold: dict[int, Arrived] = {}
        #: Outputs still to come of steps before the keyframe.
        self._num_flying = 0
        #: Why the next keyframe is needed; else they only repeat what is known.
        self._lacks: Literal["", "beginning", "lines"] = "beginning"

    def take(self, line: Line) -> list[Record]:
        """The records a line completes."""
        match line:
            case Header():
                return self._begin(line)
            case Standing():
                self._standing.append(line)
            case Key():
                whole = msgspec.structs.replace(line, requests=(*self._standing, *line.requests))
                self._standing.clear()
                return self._take_key(whole)
            case Arrived():
                self._follow_on()
                return self._arrive([line])
            case Prompt(number, ids):
                if number in self._alive.requests:
                    request = self._alive.requests[number]
                    request.tokens[: request.num_prompt] = ids
            case Chunk():
                self._alive.go_on(line)
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
                self._errors.append(f"{count:,} lines of the stream were lost")
            case Fault(what=what):
                self._lacks = "lines"
                self._errors.append(f"the recorder in the server failed: {what}")
            case Over(what):
                self.over = what
                errors, self._errors = self._errors, []
                return [QuietRecord(self._step, self._end_s, Events(errors=(*errors, what)))]
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
        self._standing.clear()
        self._scheduled.clear()
        self._untold.clear()
        self._num_flying = 0
        if before is None or before.pid == header.pid:
            return []
        self._offset = self._step
        return self._forget(list(self._alive.requests.values()), header.t, "the server was started anew")

    def _take_key(self, key: Key) -> list[Record]:
        """Begin from what is alive, if something is missing."""
        if not self._lacks:
            return []
        self._lacks = ""
        self._scheduled.clear()
        self._stopped.clear()
        self._untold.clear()
        self._num_flying = key.flying
        alive = {line.id for line in key.requests}
        gone = [one for one in self._alive.requests.values() if one.request_id not in alive]
        records = self._forget(gone, key.t, "it ended while the stream was interrupted")
        self._arrivals.clear()
        for one in self._alive.begin_again(key.requests):
            records += self._say(key.t, released=(one,))
        fresh = [line for line in key.requests if not self._alive.requests[line.r].is_known]
        self._queue = key.waiting
        return records + self._arrive(fresh)

    def _forget(self, gone: Sequence[Followed], time_s: float, why: str) -> list[Record]:
        """End requests nobody saw the end of."""
        for number, request in list(self._alive.requests.items()):
            if request in gone:
                self._alive.finish(number, "error", self._clock(time_s), why)
        return self._flush_ends(time_s)

    def _arrive(self, lines: Iterable[Arrived]) -> list[Record]:
        for line in lines:
            if not self._alive.arrived(line).is_known:
                self._arrivals.append(line.r)
                self._untold[line.r] = line
        return [] if self._num_flying else self._tell_arrivals()

    def _tell_arrivals(self, numbers: Collection[int] | None = None) -> list[Record]:
        """Records of those that are still to be told of, of these numbers; None: of all."""
        submitted, time_s = [], 0.0
        for number in [one for one in self._untold if numbers is None or one in numbers]:
            line = self._untold.pop(number)
            if (request := self._alive.requests.get(number)) is not None:
                request.is_known = True
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
            made_before=tuple(request.tokens[request.num_prompt :]),
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
        for scheduled, num_arrived in self._take_scheduled(line.n):
            if scheduled.n == line.n and line.tok:
                numbers = [number for number, _, _ in scheduled.rows]
                out = tuple((number, (token,)) for number, token in zip(numbers, line.tok, strict=False))
                line = msgspec.structs.replace(line, out=out)
            self._alive.move(scheduled)
            if scheduled.q is not None:
                self._queue = scheduled.q
            if scheduled.n == line.n and self._knows_all(scheduled):
                self._num_flying = 0
                return [*self._tell_arrivals(), self._record(scheduled, line, num_arrived)]
        # A step before the keyframe this began with: only its tokens count, and how far drafts go back.
        for number, tokens in line.out:
            if number in self._alive.requests:
                self._alive.requests[number].tokens += tokens
        for number, count in rejected_in(line).items():
            if (request := self._alive.requests.get(number)) is not None and request.computed:
                request.go_back(count)
                self._go_back(number, count)
        self._num_flying = max(0, self._num_flying - 1)
        # Who ends is told of now: nobody ends unknown.
        told = self._tell_arrivals([number for number, _ in line.end] if self._num_flying else None)
        self._end_inside(line.end, self._clock(line.t + line.d))
        return told + self._flush_ends(line.t + line.d)

    def _take_scheduled(self, step: int) -> list[tuple[Scheduled, int]]:
        """The steps scheduled up to this one; none, if it is not among them. Those ahead of it stay."""
        numbers = [scheduled.n for scheduled, _ in self._scheduled]
        count = numbers.index(step) + 1 if step and step in numbers else 0
        return [self._scheduled.popleft() for _ in range(count)]

    def _knows_all(self, scheduled: Scheduled) -> bool:
        return all(number in self._alive.requests for number, _, _ in scheduled.rows)

    def _record(self, scheduled: Scheduled, line: Output, num_arrived: int) -> StepRecord:
        assert self._header is not None
        header = self._header
        before = self._alive.take_happened()
        errors, self._errors = self._errors, []
        step = self._offset + scheduled.n
        missed = step - self._step - 1 if self._step else 0
        start_s = max(self._clock(scheduled.t), self._end_s)
        end_s = max(self._clock(line.t + line.d), start_s)
        order = row_order(scheduled, line.order)
        made = {number: tokens for number, tokens in line.out if tokens and number in self._alive.requests}
        rejected = rejected_in(line)
        admitted = self._alive.admit(order, scheduled)
        segments, counts = segments_of(order, scheduled, self._alive.requests, made, rejected)
        for number, tokens in made.items():
            self._alive.requests[number].tokens += tokens
        for number, count in rejected.items():
            self._go_back(number, count)
        slots = slots_of(self._alive.requests.values())
        self._step, self._end_s = step, end_s
        self._end_inside((*line.end, *self._stopped_in(scheduled)), end_s)
        after = self._alive.take_happened()
        late = self._late(num_arrived)
        allocated, freed, shared = self._alive.blocks.take_moves()
        ids = [*chain.from_iterable(segment.token_ids for segment in segments)]
        ids += chain.from_iterable(made.values())
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
                self._alive.requests,
                lacking(scheduled, header, self._head()),
                max(0, header.max_num_seqs - scheduled.run),
            ),
            free_blocks=line.free,
            num_blocks=header.num_blocks,
            reserved_blocks=min(NULL_BLOCKS, header.num_blocks),
            kv_tokens=self._alive.kv_tokens(header.block_size),
            events=Events(
                admitted=admitted,
                preempted=tuple(before.preempted),
                finished=(*before.finished, *after.finished),
                released=(*before.released, *after.released),
                blocks_allocated=allocated,
                blocks_freed=freed,
                blocks_shared=shared,
                tokens=self._new_tokens(ids),
                errors=tuple(errors),
            ),
            schedule_s=scheduled.d,
            forward_s=max(0.0, self._clock(line.t) - max(start_s, self._clock(scheduled.t) + scheduled.d)),
            missed=missed,
        )

    def _go_back(self, number: int, count: int) -> None:
        """Steps scheduled ahead took all drafts for right: what they feed of a request lies further back.

        But for what it is fed after it had to give way, which begins from what was left.
        """
        ahead: deque[tuple[Scheduled, int]] = deque()
        is_running = True
        for scheduled, num_arrived in self._scheduled:
            is_running = is_running and number not in scheduled.pre
            if is_running and _is_in(number, scheduled):
                scheduled = _gone_back(scheduled, number, count)
            ahead.append((scheduled, num_arrived))
        self._scheduled = ahead

    def _head(self) -> Followed | None:
        """The first of the queue that is known."""
        known = self._alive.requests
        return next((known[number] for number, _ in self._queue if number in known), None)

    def _late(self, num_arrived: int) -> list[int]:
        """Who came while a step ran, and waits behind those the server looked at."""
        late = [number for number in self._arrivals[num_arrived:] if number in self._alive.requests]
        del self._arrivals[:num_arrived]
        self._scheduled = deque((one, max(0, count - num_arrived)) for one, count in self._scheduled)
        return late

    # -- ends ---------------------------------------------------------------------------------

    def _end_inside(self, ends: Iterable[tuple[int, str]], time_s: float) -> None:
        """Requests a step ended. One whose next row was scheduled already keeps its lane until that is over:
        the row goes through the model, and nothing comes of it."""
        for number, reason in ends:
            self._alive.end(number, reason, time_s)
        for number in self._alive.over():
            if not self._is_ahead(number):
                self._alive.leave(number)

    def _is_ahead(self, number: int) -> bool:
        """Whether a step under way feeds a request."""
        return any(_is_in(number, scheduled) for scheduled, _ in self._scheduled)

    def _end_outside(self, time_s: float, ends: Sequence[tuple[int, str]]) -> list[Record]:
        told = self._tell_arrivals([number for number, _ in ends])
        for number, reason in ends:
            if self._is_ahead(number):
                self._stopped[number] = reason  # the step that feeds it is under way, and tells
            else:
                self._alive.finish(number, reason, self._clock(time_s))
        return told + self._flush_ends(time_s)

    def _stopped_in(self, scheduled: Scheduled) -> list[tuple[int, str]]:
        """Requests ended from outside that are in this step and in none after it."""
        later = [one for one, _ in self._scheduled]
        return [
            (number, self._stopped.pop(number))
            for number in list(self._stopped)
            if _is_in(number, scheduled) and not any(_is_in(number, one) for one in later)
        ]

    def _flush_ends(self, time_s: float) -> list[Record]:
        finished, released = self._alive.take_ends()
        if not (finished or released):
            return []
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


def _is_in(number: int, scheduled: Scheduled) -> bool:
    return any(row[0] == number for row in scheduled.rows)


def _gone_back(scheduled: Scheduled, number: int, count: int) -> Scheduled:
    rows = tuple((one, fed, start - count * (one == number)) for one, fed, start in scheduled.rows)
    return msgspec.structs.replace(scheduled, rows=rows)
