"""What is noted of each step; `lines` says as what.

Called by the scheduler between its own work, so every method is guarded: a fault in here is counted, said
once in the server's log and in the stream, and the server goes on. Only numbers and fresh tuples are taken
along; long lists that vLLM only ever appends to are cut and encoded later, in the stream's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import wraps
from time import monotonic, perf_counter_ns
from typing import Any, Concatenate, ParamSpec, cast

from .encoding import Line
from .facts import TRIED, shown_group
from .lines import (
    arrival_of,
    first_waiting,
    full_adapters,
    ids_of,
    is_alive,
    is_session,
    lines_of_key,
    one_token_each,
    prompt_of,
    rejected_drafts,
    size_of,
    status_of,
    table_of,
    tables_changed,
    tables_whole,
    why_wait,
    with_prompt,
)
from .stream import Finish, Stream

#: Steps between two lines on what recording costs.
COST_EVERY = 256
#: So many faults within so many steps end the recording for good.
MOST_FAULTS, FAULT_STEPS = 20, 5000
#: States of a request that waits for its turn only.
_PLAIN = ("WAITING", "PREEMPTED")
#: Steps in flight whose output may be yet to come.
_MOST_IN_FLIGHT = 64

_log = logging.getLogger("vllm.cbtui")

P = ParamSpec("P")


def guarded(
    hook: Callable[Concatenate[Recorder, P], None],
) -> Callable[Concatenate[Recorder, P], None]:
    """Let no exception out of a hook, and add up the time it takes."""

    @wraps(hook)
    def call(self: Recorder, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.is_off:
            return
        start = perf_counter_ns()
        try:
            hook(self, *args, **kwargs)
        except Exception as exc:
            self.fault(exc)
        self.spent_ns += perf_counter_ns() - start

    return cast("Callable[Concatenate[Recorder, P], None]", call)


class Recorder:
    """Notes what a scheduler does.

    Args:
        stream: where the lines go.
        scheduler: vLLM's, fully made.
    """

    def __init__(self, stream: Stream, scheduler: Any) -> None:
        self._stream = stream
        self._shown = shown_group(scheduler)
        self.spent_ns = 0
        self.num_faults = 0
        #: After how many steps the last faults were.
        self._faults: deque[int] = deque(maxlen=MOST_FAULTS)
        self.is_off = False
        #: The scheduler is amid a step's work: its requests are in no state to be told.
        self._is_amid = False
        #: Whether anybody takes the lines. While nobody does steps are counted, and nothing else.
        self._is_followed = stream.is_heard
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        #: Requests whose prompt a keyframe left out: it is sent when they enter.
        self._owed: set[str] = set()
        #: Numbers of requests whose KV was taken away on purpose since the last step.
        self._emptied: set[int] = set()
        #: Requests whose prompt comes in chunks, and how long a prompt was told of each.
        self._sessions: dict[str, int] = {}
        self._steps = 0
        #: Steps whose output is yet to come, by the identity of vLLM's own object.
        self._in_flight: dict[int, tuple[int, dict[str, int]]] = {}
        self._waiting: tuple[tuple[int, str], ...] = ()
        #: What the queue is looked at again for: its length, arrivals and ends, who entered or gave way.
        self._queue: tuple[object, ...] = ()
        self._num_moved = 0
        self._has_own_reasons = False
        #: Of the last step: its requests' numbers, also of those that end before its tokens are there; where
        #: each was fed one token, that, and all computed ones.
        self._row_numbers: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._computed = 0
        #: The first step after the last keyframe.
        self._key_step = 0
        #: Drafts rejected in the step whose tokens are being taken in.
        self._rejected: list[tuple[int, int]] = []
        self._order: tuple[list[str], list[int], list[int]] = ([], [], [])

    # -- hooks --------------------------------------------------------------------------------

    @guarded
    def arrived(self, scheduler: Any, request: Any) -> None:
        """A request was added, or to one whose prompt comes in chunks another."""
        self._look(scheduler)
        request_id = request.request_id
        known = scheduler.requests.get(request_id)
        if not self._is_followed or known is None:  # None: that was the end of its chunks
            return
        if request_id not in self._numbers:
            self._num_moved += 1
            self._put(self._arrival(known, monotonic()), with_prompt)
        self._tell_chunks(scheduler)

    @guarded
    def before(self, scheduler: Any) -> None:
        """A step is about to be scheduled."""
        self._is_amid = False
        self._look(scheduler)
        self._is_amid = True

    def _look(self, scheduler: Any) -> None:
        """See whether anybody reads, and what they lack."""
        if self._stream.is_over:
            self.is_off = True
        elif self._stream.wants_key:
            if self._stream.takes_key and not self._is_amid:
                self._is_followed = True
                self._key(scheduler)
        elif self._is_followed and not self._stream.is_heard:
            self._is_followed = False
            self._numbers.clear()  # a keyframe numbers who is there
            self._owed.clear()
            self._sessions.clear()

    def _tell_chunks(self, scheduler: Any) -> None:
        """Of requests whose prompt comes in chunks: those that have gone on with another."""
        for request_id, told in list(self._sessions.items()):
            request = scheduler.requests.get(request_id)
            if request is None or request_id not in self._numbers:
                del self._sessions[request_id]
            elif request.num_prompt_tokens != told:
                self._sessions[request_id] = request.num_prompt_tokens
                self._num_moved += 1
                line: Line = {"k": "c", "t": monotonic(), "r": self._numbers[request_id]}
                line |= {"max": request.max_tokens, "_": prompt_of(request)}
                self._put(line, with_prompt)

    @guarded
    def scheduled(self, scheduler: Any, output: Any, start_s: float, end_s: float) -> None:
        """A step was scheduled."""
        self._is_amid = False
        counts = output.num_scheduled_tokens
        self._steps += bool(counts)
        if not self._is_followed:
            self._begin(output, {})
            return
        preempted = [self._numbers[one] for one in output.preempted_req_ids or () if one in self._numbers]
        if not counts and not preempted:
            return
        rows = None
        if preempted or not self._goes_on(scheduler, output):
            rows = self._rows_of(scheduler, counts)
        line: Line = {
            "k": "s",
            "n": self._steps if counts else 0,
            "t": start_s,
            "d": end_s - start_s,
            "run": len(scheduler.running),
            "wait": self._num_waiting(scheduler),
        }
        if rows is not None:
            line["rows"] = rows
        if preempted:
            line["pre"] = preempted
            if self._emptied:
                line["reset"] = [number for number in preempted if number in self._emptied]
                self._emptied.clear()
        if output.scheduled_spec_decode_tokens:
            # Copied: vLLM writes into it, and lets requests share a list.
            line["drafts"] = {
                self._numbers[one]: tuple(ids) for one, ids in output.scheduled_spec_decode_tokens.items()
            }
        if line["wait"]:
            line |= why_wait(scheduler)
        self._add_tables(line, scheduler, output)
        queue = (line["wait"], self._num_moved, preempted, bool(output.scheduled_new_reqs))
        if queue != self._queue or self._has_own_reasons:
            self._queue = queue
            waiting = self._first_waiting(scheduler)
            self._has_own_reasons = any(status not in _PLAIN for _, status in waiting)
            if waiting != self._waiting:
                self._waiting = line["q"] = waiting
        self._begin(output, self._row_numbers)
        self._put(line)

    @guarded
    def answered(self, scheduled: Any, model_output: Any) -> None:
        """A step's tokens have come and are about to be taken in."""
        self._is_amid = True
        self._rejected = []
        if self._is_followed and scheduled.scheduled_spec_decode_tokens:
            self._rejected = rejected_drafts(scheduled, model_output, self._numbers)

    @guarded
    def updated(self, scheduler: Any, step: tuple[Any, Any, Any], start_s: float, end_s: float) -> None:
        """A step's tokens were taken in.

        Args:
            step: what was scheduled, what the model said, and what goes to the clients.
        """
        self._is_amid = False
        scheduled, model_output, outputs = step
        number, in_step = self._in_flight.pop(id(scheduled), (0, {}))
        if not self._is_followed:
            return
        rows = list(in_step.values())
        numbers = self._numbers
        ids = model_output.req_ids
        if self._order[:2] != (ids, rows):
            self._order = (list(ids), rows, [in_step[one] for one in ids if one in in_step])
        order = self._order[2]
        ones = [one for of_client in outputs.values() for one in of_client.outputs]
        tokens = one_token_each(ones, numbers, rows) if number >= self._key_step else None
        out, end = [], []
        if tokens is None:
            for one in ones:
                request = numbers.get(one.request_id)
                if request is None:
                    continue
                if one.new_token_ids:
                    out.append((request, tuple(one.new_token_ids)))
                if one.finish_reason is not None and not is_alive(scheduler, one.request_id):
                    end.append((request, str(one.finish_reason)))
                    del numbers[one.request_id]
        if not (number or out or end):
            return
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        line: Line = {"k": "o", "n": number, "t": start_s, "d": end_s - start_s, "free": free}
        if tokens is None:
            line["out"] = out
        else:
            line["tok"] = tokens
        if self._rejected:
            line["rej"] = self._rejected
        if end:
            line["end"] = end
        if order != rows:
            line["order"] = order
        self._put(line)
        self._tell_chunks(scheduler)
        if number and number % COST_EVERY == 0:
            self._put(self._cost())

    @guarded
    def ended(self, scheduler: Any, request_ids: Iterable[str], reason: str) -> None:
        """Requests were ended from outside: their client left, or the front end found a stop string."""
        end = [(self._numbers.pop(one), reason) for one in request_ids if one in self._numbers]
        if end:
            self._num_moved += 1
            self._put({"k": "f", "t": monotonic(), "end": end})
        self._look(scheduler)

    @guarded
    def emptied(self, scheduler: Any) -> None:
        """All that run are about to lose their KV: the prefix cache is reset."""
        if self._is_followed:
            running = (one.request_id for one in scheduler.running)
            self._emptied |= {self._numbers[one] for one in running if one in self._numbers}

    def close(self) -> None:
        """The server ends."""
        if self.is_off:
            return
        self.is_off = True
        try:
            self._put(self._cost())
            self._stream.close()
        except Exception as exc:
            self.fault(exc)

    def fault(self, exc: Exception) -> None:
        """Count a fault of this recorder; the first is logged, too many end the recording."""
        self.num_faults += 1
        words = f"{type(exc).__name__}: {exc}"
        try:
            if self.num_faults == 1:
                _log.warning("cbtui: a step could not be recorded (%s); the server goes on", words)
            self._put({"k": "fault", "n": self.num_faults, "what": words[:200]})
            self._stream.wants_key = True
        except Exception:
            self.is_off = True
        self._faults.append(self._steps)
        if self.is_off or len(self._faults) < MOST_FAULTS or self._steps - self._faults[0] > FAULT_STEPS:
            return
        self.is_off = True
        tried = " and ".join(TRIED)
        why = f"{MOST_FAULTS} faults of the recorder, at last {words[:200]}; it was tried with vLLM {tried}"
        _log.warning("cbtui: the recording stops: %s", why)
        self._stream.close(0.0, {"k": "over", "what": why})

    def _begin(self, output: Any, rows: dict[str, int]) -> None:
        """A step is under way, until its output comes."""
        if not output.num_scheduled_tokens:
            return
        while len(self._in_flight) >= _MOST_IN_FLIGHT:
            del self._in_flight[next(iter(self._in_flight))]
        self._in_flight[id(output)] = (self._steps, rows)

    def _goes_on(self, scheduler: Any, output: Any) -> bool:
        """Whether a step feeds those of the step before one more token each, so that nothing needs saying."""
        counts, requests = output.num_scheduled_tokens, scheduler.requests
        if (
            output.scheduled_new_reqs
            or output.scheduled_cached_reqs.resumed_req_ids
            or counts != self._counts
        ):
            return False
        total = sum([requests[request_id].num_computed_tokens for request_id in counts])
        is_next = total == self._computed + len(counts)
        self._computed = total
        return is_next

    def _rows_of(self, scheduler: Any, counts: dict[str, int]) -> list[tuple[int, int, int]]:
        """The rows in full; remembered, if the next step may go on from them."""
        requests, numbers = scheduler.requests, self._numbers
        rows = []
        for request_id, count in counts.items():
            # vLLM has counted the step's tokens as computed already.
            rows.append((numbers[request_id], count, requests[request_id].num_computed_tokens - count))
            if request_id in self._owed:
                self._owed.discard(request_id)
                prompt = prompt_of(requests[request_id])
                self._put({"k": "p", "r": numbers[request_id], "_": prompt}, with_prompt)
        self._row_numbers = {request_id: numbers[request_id] for request_id in counts}
        # Copied: vLLM goes on with the dictionary.
        self._counts = dict(counts) if all(count == 1 for count in counts.values()) else {}
        self._computed = sum(start + count for _, count, start in rows)
        return rows

    # -- lines --------------------------------------------------------------------------------

    def _put(self, line: Line, finish: Finish | None = None) -> None:
        self._stream.put(line, finish, size_of(line))

    def _number(self, request_id: str) -> int:
        number = self._numbers.get(request_id)
        if number is None:
            number = self._numbers[request_id] = self._next_number
            self._next_number += 1
        return number

    def _arrival(self, request: Any, now_s: float) -> Line:
        if is_session(request):
            self._sessions[request.request_id] = request.num_prompt_tokens
        return arrival_of(request, self._number(request.request_id), now_s)

    def _add_tables(self, line: Line, scheduler: Any, output: Any) -> None:
        """Block tables, as far as the step changed them."""
        group = self._shown.number
        if group is None:
            return
        if self._shown.is_windowed:
            line["tables"] = tables_whole(scheduler, output, self._numbers, group)
        else:
            line.update(tables_changed(output, self._numbers, group))

    def _first_waiting(self, scheduler: Any) -> tuple[tuple[int, str], ...]:
        adapters = full_adapters(scheduler)
        return tuple(
            (self._numbers[one.request_id], status_of(one, adapters))
            for one in first_waiting(scheduler)
            if one.request_id in self._numbers
        )

    @staticmethod
    def _num_waiting(scheduler: Any) -> int:
        return scheduler.get_request_counts()[1]

    def _key(self, scheduler: Any) -> None:
        now = monotonic()
        running = {request.request_id for request in scheduler.running}
        named = {request.request_id for request in first_waiting(scheduler)}
        requests = []
        for request in scheduler.requests.values():
            if request.is_finished():
                continue
            line = self._arrival(request, now) | {"k": "one", "_all": ids_of(request)}
            line["at"] = request.num_computed_tokens
            line["total"] = len(request.all_token_ids)
            line["on"] = request.request_id in running
            if line["on"]:
                if self._shown.number is not None:
                    line["table"] = table_of(scheduler, request.request_id, self._shown.number)
            elif request.request_id not in named and not request.num_preemptions:
                self._owed.add(request.request_id)
                del line["_"], line["_all"]
            requests.append(line)
        self._waiting, self._queue = self._first_waiting(scheduler), ()
        self._counts, self._key_step = {}, self._steps + 1
        key: Line = {
            "k": "key",
            "n": self._steps + 1,
            "t": now,
            "requests": requests,
            "waiting": self._waiting,
            "wait": self._num_waiting(scheduler),
            "flying": len(self._in_flight),
        }
        self._stream.put_key(key, lines_of_key)

    def _cost(self) -> Line:
        stream = self._stream
        return {
            "k": "cost",
            "t": monotonic(),
            "steps": self._steps,
            "hooks_s": self.spent_ns / 1e9,
            "thread_s": stream.cpu_s,
            "lost": stream.num_lost,
            "faults": self.num_faults,
        }
