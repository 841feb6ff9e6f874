"""What a monitoring system wants of an engine: totals since its start, and distributions, from its records.

Unlike `engine.stream.metrics` nothing here has a window, and what is kept of a request goes with its end:
memory does not grow with the run. Times are seconds on the engine clock. Knows nothing of Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from engine.stream.records import Admission, Finish, QuietRecord, Record, RequestRecord, StepRecord

# The bounds are vLLM's (v1/metrics/loggers.py), so that its dashboards read the same.
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


class Distribution:
    """How many values were at most each bound, and their sum.

    Args:
        bounds: rising; what is above the last is counted under infinity.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, float("inf"))
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, values at most that), rising; the last bound is infinity."""
        return list(zip(self._bounds, accumulate(self._counts), strict=True))


@dataclass(slots=True)
class _Unfinished:
    """What must be known of a request until it ends."""

    request: RequestRecord
    first_token_s: float | None = None
    last_token_s: float = 0.0
    was_admitted: bool = False


class Totals:
    """Folds records; `apply` each once, in order.

    Attributes:
        running, waiting: requests in a slot (held slots are nobody's), and unfinished ones without.
        slots, kv_cache_usage, mode, policy: as the last step had them; the usage is 0–1.
        steps, engine_s, preemptions: so far; `engine_s` is the steps' time.
        prompt_tokens, generation_tokens: prompt tokens fed for the first time, tokens sampled.
        recomputed_tokens, dead_tokens, padding_tokens: positions spent on tokens fed again, on finished
            requests, on nothing.
        prefix_cache_hits: tokens found in shared blocks.
        finished: requests by how they ended.
        first_token_s, between_tokens_s, per_token_s, request_s, queue_s: TTFT, ITL, TPOT, E2E latency and
            queue time.
        request_prompt_tokens, request_generation_tokens: of each request that ended.
        step_tokens: useful positions of each step.
    """

    def __init__(self) -> None:
        self._unfinished: dict[str, _Unfinished] = {}
        self._running: set[str] = set()
        self.slots = 0
        self.kv_cache_usage = 0.0
        self.mode = self.policy = ""
        self.steps = self.preemptions = 0
        self.engine_s = 0.0
        self.prompt_tokens = self.generation_tokens = 0
        self.recomputed_tokens = self.dead_tokens = self.padding_tokens = 0
        self.prefix_cache_hits = 0
        self.finished: Counter[str] = Counter()
        self.first_token_s = Distribution(FIRST_TOKEN_S)
        self.between_tokens_s = Distribution(PER_TOKEN_S)
        self.per_token_s = Distribution(PER_TOKEN_S)
        self.request_s = Distribution(REQUEST_S)
        self.queue_s = Distribution(REQUEST_S)
        self.request_prompt_tokens = Distribution(REQUEST_TOKENS)
        self.request_generation_tokens = Distribution(REQUEST_TOKENS)
        self.step_tokens = Distribution(STEP_TOKENS)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._unfinished) - len(self._running)

    def apply(self, record: Record) -> None:
        """Take one record in. Cost follows what is in it, not the length of the run."""
        events = record.events
        for request in events.submitted:
            self._unfinished[request.request_id] = _Unfinished(request)
        self.preemptions += len(events.preempted)
        if isinstance(record, StepRecord):
            self._take_step(record)
        for finish in events.finished:
            self._end(finish)
        if isinstance(record, QuietRecord):
            self._running.difference_update(preemption.request_id for preemption in events.preempted)

    def _take_step(self, step: StepRecord) -> None:
        tokens = step.tokens
        self.steps += 1
        self.engine_s += step.end_s - step.start_s
        self.prompt_tokens += tokens.prompt
        self.recomputed_tokens += tokens.recomputed
        self.dead_tokens += tokens.dead
        self.padding_tokens += tokens.padding
        self.step_tokens.add(tokens.useful)
        self.slots, self.mode, self.policy = step.max_num_seqs, step.mode, step.policy
        self.kv_cache_usage = 1 - step.free_blocks / step.num_blocks
        self._running = {slot.request_id for slot in step.slots if not slot.held}
        for admission in step.events.admitted:
            self._admit(admission, step.start_s)
        for segment in step.segments:
            if made := len(segment.outputs):
                self._sample(segment.request_id, made, step.end_s)

    def _admit(self, admission: Admission, time_s: float) -> None:
        self.prefix_cache_hits += admission.num_cached_tokens
        story = self._unfinished[admission.request_id]
        if not story.was_admitted:
            story.was_admitted = True
            self.queue_s.add(time_s - story.request.arrival_s)

    def _sample(self, request_id: str, made: int, time_s: float) -> None:
        self.generation_tokens += made
        story = self._unfinished[request_id]
        if story.first_token_s is None:
            story.first_token_s = time_s
            self.first_token_s.add(time_s - story.request.arrival_s)
        else:
            self.between_tokens_s.add(time_s - story.last_token_s)
        story.last_token_s = time_s

    def _end(self, finish: Finish) -> None:
        story = self._unfinished.pop(finish.request_id)
        self._running.discard(finish.request_id)
        self.finished[finish.reason] += 1
        self.request_s.add(finish.time_s - story.request.arrival_s)
        self.request_prompt_tokens.add(len(story.request.prompt_token_ids))
        self.request_generation_tokens.add(finish.num_output_tokens)
        if story.first_token_s is not None and finish.num_output_tokens > 1:
            gaps = finish.num_output_tokens - 1
            self.per_token_s.add((story.last_token_s - story.first_token_s) / gaps)
