"""Who is alive on a recording vLLM, in which lanes and blocks, and what became of them since the last record.

Pure. Knows requests by their numbers in the stream; knows neither steps nor a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.attach.vllm_lines import Arrived, Chunk, Scheduled
from engine.attach.vllm_requests import Blocks, Followed, Lanes, table_from
from engine.stream.records import (
    NO_BLOCK,
    STOP_OR_ABORT,
    UNKNOWN_TOKEN,
    Admission,
    Finish,
    Preemption,
    Release,
)

#: vLLM's reasons in the records' words; others stand as they are. What meets a stop string is aborted by its
#: web server, which alone knows the text.
_REASONS = {"repetition": "stop", "abort": STOP_OR_ABORT}


@dataclass(slots=True)
class Happened:
    """What goes into the next record."""

    preempted: list[Preemption] = field(default_factory=list)
    finished: list[Finish] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)


class Alive:
    """Moved on by what lines say. Requests by number, in order of arrival; `blocks` are all of theirs."""

    def __init__(self) -> None:
        self.requests: dict[int, Followed] = {}
        self.blocks = Blocks()
        self._lanes = Lanes()
        self._happened = Happened()

    def arrived(self, line: Arrived) -> Followed:
        """The request of a line; a new one, if it was not there."""
        return self.requests.setdefault(line.r, _followed(line))

    def go_on(self, line: Chunk) -> None:
        """A request goes on with another chunk; of its outputs vLLM has kept some as part of the prompt."""
        request = self.requests.get(line.r)
        if request is not None:
            request.tokens, request.num_prompt = list(line.prompt), len(line.prompt)
            request.max_tokens = line.max

    def begin_again(self, lines: Iterable[Arrived]) -> list[Release]:
        """Take over who is alive from a keyframe; whoever is not in it must have been finished.

        Returns:
            the lanes of those that had one and run no more.
        """
        known = {request.request_id: request for request in self.requests.values()}
        self.blocks.clear()
        self._lanes.clear()
        self.requests.clear()
        released = []
        for line in lines:
            request = self.requests[line.r] = known.get(line.id) or _followed(line)
            request.tokens = [*_prompt_of(line), *line.out]
            request.computed = line.at
            request.high_water = max(request.high_water, line.at)
            request.table = table_from(line.table)
            self.blocks.hold(request.table)
            if request.lane is not None and line.on:
                request.lane = self._lanes.take(request.lane)
            elif not line.on and request.lane is not None:
                released.append(Release(line.id, request.lane))
                request.lane = None
        self.blocks.take_moves()
        return released

    def move(self, scheduled: Scheduled) -> None:
        """Preemptions and block tables, as a step was scheduled."""
        for number in scheduled.pre:
            request = self.requests.get(number)
            if request is None or request.lane is None:
                continue
            reason = "reset" if number in scheduled.reset else "kv_blocks"
            self._happened.preempted.append(
                Preemption(request.request_id, request.lane, request.computed, reason)
            )
            self._lanes.leave(request.lane)
            self.blocks.release(request.table)
            request.lane, request.computed, request.table = None, 0, []
        for number, table in scheduled.tables.items():
            if (request := self.requests.get(number)) is not None:
                whole = table_from(table)
                self.blocks.hold(whole)
                self.blocks.release(request.table)
                request.table = whole
        for number, more in scheduled.more.items():
            if (request := self.requests.get(number)) is not None:
                self.blocks.hold(more)
                request.table += more

    def admit(self, order: Sequence[int], scheduled: Scheduled) -> tuple[Admission, ...]:
        """Give lanes to those in a step that have none.

        Args:
            order: numbers as they lay in the batch.
        """
        starts = {number: start for number, _, start in scheduled.rows}
        admitted = []
        for place, number in enumerate(order):
            request = self.requests[number]
            if request.lane is not None:
                continue
            request.lane = self._lanes.take(place)
            if request.is_over:
                continue  # followed from the middle, where its last row is dead work
            start = starts[number]
            # Followed from the middle, it was fed before: that is no prefix hit.
            cached = start if start != request.computed else 0
            admitted.append(Admission(request.request_id, request.lane, request.has_run, cached))
            request.has_run = True
        return tuple(admitted)

    def finish(self, number: int, reason: str, time_s: float, error: str = "") -> None:
        """A request has ended and left its lane; arguments as `end`'s."""
        self.end(number, reason, time_s, error)
        self.leave(number)

    def end(self, number: int, reason: str, time_s: float, error: str = "") -> None:
        """A request has ended, and keeps its lane; one that is not known, or has ended, is passed over.

        Args:
            reason: vLLM's word for it.
        """
        request = self.requests.get(number)
        if request is None or request.is_over:
            return
        request.is_over = True
        if request.is_known:
            self._happened.finished.append(
                Finish(
                    request.request_id,
                    _REASONS.get(reason, reason),
                    request.lane,
                    request.num_outputs,
                    time_s,
                    error,
                )
            )

    def leave(self, number: int) -> None:
        """A request's lane and blocks are free; one that is not known is passed over."""
        request = self.requests.pop(number, None)
        if request is None:
            return
        if request.lane is not None:
            self._happened.released.append(Release(request.request_id, request.lane))
            self._lanes.leave(request.lane)
        self.blocks.release(request.table)

    def over(self) -> list[int]:
        """Who has ended and not left."""
        return [number for number, request in self.requests.items() if request.is_over]

    def kv_tokens(self, block_size: int) -> int:
        """Tokens whose KV the running ones hold; those of a shared block count once, those a window has left
        not at all."""
        running = [one for one in self.requests.values() if one.lane is not None]
        computed = sum(one.computed for one in running)
        left = sum(one.table.count(NO_BLOCK) for one in running)
        return max(0, computed - (left + self.blocks.num_shared_again) * block_size)

    def take_happened(self) -> Happened:
        """What happened since the last call."""
        happened, self._happened = self._happened, Happened()
        return happened

    def take_ends(self) -> tuple[tuple[Finish, ...], tuple[Release, ...]]:
        """Of what happened, the ends alone; preemptions stay for a step's record."""
        happened = self._happened
        ends = tuple(happened.finished), tuple(happened.released)
        happened.finished, happened.released = [], []
        return ends


def _followed(line: Arrived) -> Followed:
    return Followed(line.id, [*_prompt_of(line), *line.out], line.len, line.max)


def _prompt_of(line: Arrived) -> tuple[int, ...]:
    return line.prompt or (UNKNOWN_TOKEN,) * line.len
