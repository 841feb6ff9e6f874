"""Figures folded from the records, with the field's names (see each attribute).

All times are on the engine clock. Rates have a window; shares are over the current run: the stretch of
steps since the engine was last empty.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import msgspec

from engine.stream.ledger import Ledger
from engine.stream.records import QuietRecord, Record, RequestRecord, StepRecord

RATE_WINDOW_S = 5.0
#: Finished requests whose latencies count towards the percentiles: the newest ones.
LATENCY_SAMPLES = 1000
#: Finished runs whose figures are kept.
RUNS_KEPT = 64


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile (`share` in 0–1) of values in any order; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def acceptance_rate(accepted: int, drafts: int) -> float | None:
    """Drafts accepted / drafts fed; None of none."""
    return accepted / drafts if drafts else None


def hit_rate(cached: int, prefilled: int) -> float | None:
    """Prefix hit rate: tokens found / tokens found or fed; None of none."""
    return cached / (cached + prefilled) if cached + prefilled else None


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The counters at one step.

    Attributes:
        output_tokens_per_s, prompt_tokens_per_s, steps_per_s: over the last `RATE_WINDOW_S` of the engine
            clock; None before the first step.
        slot_occupancy: slots that fed a useful token / `max_num_seqs`, mean over the run's steps, 0–1.
        padding_waste: padding token positions / all token positions, over the run.
        dead_work: positions spent on finished requests / all token positions, over the run.
        rejected_work: positions spent on drafts that came to nothing / all token positions, over the run.
        acceptance_rate: drafts accepted / drafts fed, over the run; None: there are none.
        prefix_hit_rate: prompt tokens (recomputed ones too) found in shared blocks / found or fed, over
            the run; None: there are none.
        batch_fill: scheduled tokens / `max_num_batched_tokens`, in the shown step.
        kv_tokens, kv_cache_usage: tokens cached; blocks in use / all blocks, 0–1.
        ttft_p50_s, ttft_p95_s: arrival to first token, over requests that have one.
        itl_p50_s, itl_p95_s: gaps between successive output tokens; those of one step count as one.
        tpot_p50_s: per request, finished ones.
        num_finished, num_requests: ended, arrived.
        step_s: seconds of the shown step.
        num_steps: steps of the run.
        num_output_tokens: output tokens of the run.
        figures: an observed server's own figures, by their names there; None: it no longer tells one.
        throughput_history: output tokens/s of the last steps, oldest first, for a sparkline.
    """

    output_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    steps_per_s: float | None = None
    slot_occupancy: float = 0.0
    padding_waste: float = 0.0
    dead_work: float = 0.0
    batch_fill: float = 0.0
    kv_tokens: int = 0
    kv_cache_usage: float = 0.0
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    itl_p50_s: float | None = None
    itl_p95_s: float | None = None
    tpot_p50_s: float | None = None
    num_finished: int = 0
    num_requests: int = 0
    step_s: float = 0.0
    num_steps: int = 0
    num_output_tokens: int = 0
    throughput_history: tuple[float, ...] = ()
    prefix_hit_rate: float | None = None
    figures: tuple[tuple[str, float | None], ...] = ()
    rejected_work: float = 0.0
    acceptance_rate: float | None = None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of steps from an empty engine to an empty engine.

    Attributes:
        modes: in the order they were used; usually one.
        first_step, last_step: step numbers.
        slot_steps: sum of `max_num_seqs` over the steps: lanes offered.
        useful: slot-steps that fed a useful token.
        dead: slot-steps that fed a finished request's token.
        kept_empty: slot-steps that fed nothing although a request waited: the wave was not over, or there was
            not enough of something else.
        output_tokens: sampled tokens.
        token_positions, padding, rejected: of the steps' tensors, and those of them that were padding, and
            drafts that came to nothing.
        drafts, accepted: drafts fed, and those accepted.
        prefilled_tokens: prompt tokens fed, recomputed ones too.
        cached_tokens: tokens found in shared blocks instead (prefix hits).
        elapsed_s: engine seconds.
        num_requests: those that arrived in it.
        workload: a digest of what was asked, to recognise the same requests run again in another mode.
        arrivals: a digest of after how many steps of the run each request arrived.
        finished: whether the engine is empty again.
        is_whole: all requests in its steps are known; else others' were there too, and no share is made.
    """

    modes: tuple[str, ...]
    first_step: int
    last_step: int
    slot_steps: int
    useful: int
    dead: int
    output_tokens: int
    token_positions: int
    padding: int
    elapsed_s: float
    num_requests: int
    workload: bytes
    arrivals: bytes
    finished: bool
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    kept_empty: int = 0
    rejected: int = 0
    drafts: int = 0
    accepted: int = 0
    is_whole: bool = True

    @property
    def prefix_hit_rate(self) -> float | None:
        """Tokens found in shared blocks / those found and those fed; None: there are none."""
        return hit_rate(self.cached_tokens, self.prefilled_tokens)

    @property
    def steps(self) -> int:
        return self.last_step - self.first_step + 1


@dataclass(slots=True)
class _Asked:
    """The requests of a run as they arrive: how many, and digests of what they were and when they came."""

    count: int = 0
    workload: bytes = b""
    arrivals: bytes = b""

    def add(self, request: RequestRecord, steps: int) -> None:
        """One more, after so many steps of the run."""
        self.count += 1
        what = array("q", (*request.prompt_token_ids, request.max_tokens)).tobytes()
        self.workload = blake2b(self.workload + what, digest_size=16).digest()
        self.arrivals = blake2b(self.arrivals + steps.to_bytes(8, "little"), digest_size=16).digest()


@dataclass(slots=True)
class _Run:
    first_step: int
    modes: list[str] = field(default_factory=list)
    last_step: int = 0
    slot_steps: int = 0
    useful: int = 0
    dead: int = 0
    output_tokens: int = 0
    token_positions: int = 0
    padding: int = 0
    elapsed_s: float = 0.0
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    kept_empty: int = 0
    rejected: int = 0
    drafts: int = 0
    accepted: int = 0
    is_whole: bool = True


class Metrics:
    """Folds records; share one `Ledger` with it, applied first.

    `snapshot()` is asked once a frame, `apply()` once a record, so percentiles are computed in the former.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._window: deque[tuple[float, float, int, int]] = deque()
        self._window_output = 0
        self._window_prompt = 0
        self._window_s = 0.0
        self._history: deque[float] = deque(maxlen=60)
        self._ttft: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._itl: deque[float] = deque(maxlen=4 * LATENCY_SAMPLES)
        self._tpot: deque[float] = deque(maxlen=LATENCY_SAMPLES)
        self._last: StepRecord | None = None
        self._run: _Run | None = None
        self._asked = _Asked()
        self._unfinished: set[str] = set()
        self._num_finished = 0
        self._num_requests = 0
        self._figures: dict[str, float | None] = {}
        #: The newest finished runs, oldest first, and how many there were in all.
        self.runs: list[RunSummary] = []
        self.num_runs = 0

    def apply(self, record: Record) -> None:
        """Take in a record the ledger has already seen."""
        # What a step's record says arrived was there before the step was scheduled.
        before = record.step - isinstance(record, StepRecord)
        for request in record.events.submitted:
            if not self._unfinished and (self._run is None or self._run.last_step):
                self._close_run()
            self._unfinished.add(request.request_id)
            self._num_requests += 1
            self._asked.add(request, max(0, before - self._run.first_step + 1) if self._run else 0)
        if record.events.figures:
            self._figures.update(record.events.figures)
        if isinstance(record, StepRecord):
            self._apply_step(record)
        for finish in record.events.finished:
            self._unfinished.discard(finish.request_id)
            self._num_finished += 1
            tpot = self._ledger[finish.request_id].tpot_s
            if tpot is not None:
                self._tpot.append(tpot)
        if isinstance(record, QuietRecord) and not self._unfinished and self._run is None:
            self._asked = _Asked()
        if not self._unfinished and self._run is not None and record.events.finished:
            self._close_run()

    def copy(self) -> Metrics:
        """These figures, to be folded on apart from them; of finished runs it knows the last one only.

        The ledger is shared and may be ahead of the copy, so that the figures at any earlier step come
        from a copy made before it and the records in between.
        """
        twin = Metrics(self._ledger)
        twin._window = self._window.copy()
        twin._window_output, twin._window_prompt = self._window_output, self._window_prompt
        twin._window_s = self._window_s
        twin._history = self._history.copy()
        twin._ttft, twin._itl, twin._tpot = self._ttft.copy(), self._itl.copy(), self._tpot.copy()
        twin._last = self._last
        twin._run = self._run and replace(self._run, modes=list(self._run.modes))
        twin._asked = replace(self._asked)
        twin._unfinished = set(self._unfinished)
        twin._num_finished, twin._num_requests = self._num_finished, self._num_requests
        twin._figures = dict(self._figures)
        twin.runs, twin.num_runs = self.runs[-1:], self.num_runs
        return twin

    def _apply_step(self, record: StepRecord) -> None:
        self._last = record
        run = self._run
        if run is None:
            run = self._run = _Run(first_step=record.step)
        if not run.modes or run.modes[-1] != record.mode:
            run.modes.append(record.mode)
        duration = record.end_s - record.start_s
        sampled = useful = dead = 0
        for segment in record.segments:
            if segment.kind == "dead":
                dead += 1
                continue
            useful += 1
            if segment.drafts is not None:
                run.drafts += segment.drafts.fed
                run.accepted += segment.drafts.accepted
            made = len(segment.outputs)
            if not made:
                continue
            sampled += made
            # Asked by step, because the ledger may be ahead of the record: see `copy`.
            story = self._ledger[segment.request_id]
            place = story.tokens_at(record.step).start
            if place and place == len(story.request.made_before):
                continue  # when the one before it came nobody saw
            if place:
                self._itl.append(story.token_times[place] - story.token_times[place - 1])
            else:
                self._ttft.append(story.token_times[0] - story.request.arrival_s)
        run.last_step = record.step
        run.slot_steps += record.max_num_seqs
        run.useful += useful
        run.dead += dead
        run.kept_empty += max(0, min(record.max_num_seqs - useful - dead, record.waiting_count))
        run.output_tokens += sampled
        run.token_positions += record.tokens.total
        run.padding += record.tokens.padding
        run.rejected += record.tokens.rejected
        run.prefilled_tokens += record.tokens.prompt + record.tokens.recomputed
        run.cached_tokens += sum(admission.num_cached_tokens for admission in record.events.admitted)
        run.elapsed_s += duration
        run.is_whole = run.is_whole and "requests" not in record.inferred
        self._slide(record.end_s, duration, sampled, record.tokens.prompt)

    def _slide(self, end_s: float, duration: float, output: int, prompt: int) -> None:
        self._window.append((end_s, duration, output, prompt))
        self._window_s += duration
        self._window_output += output
        self._window_prompt += prompt
        while len(self._window) > 1 and self._window[0][0] <= end_s - RATE_WINDOW_S:
            _, old, old_output, old_prompt = self._window.popleft()
            self._window_s -= old
            self._window_output -= old_output
            self._window_prompt -= old_prompt
        self._history.append(output / duration if duration > 0 else 0.0)

    def _close_run(self) -> None:
        if self._run is not None:
            self.runs.append(self._summary(self._run, finished=True))
            self.num_runs += 1
            del self.runs[:-RUNS_KEPT]
        self._run = None
        self._asked = _Asked()

    def _summary(self, run: _Run, *, finished: bool) -> RunSummary:
        return RunSummary(
            modes=tuple(run.modes),
            first_step=run.first_step,
            last_step=run.last_step,
            slot_steps=run.slot_steps,
            useful=run.useful,
            dead=run.dead,
            output_tokens=run.output_tokens,
            token_positions=run.token_positions,
            padding=run.padding,
            elapsed_s=run.elapsed_s,
            num_requests=self._asked.count,
            workload=self._asked.workload,
            arrivals=self._asked.arrivals,
            finished=finished,
            prefilled_tokens=run.prefilled_tokens,
            cached_tokens=run.cached_tokens,
            kept_empty=run.kept_empty,
            rejected=run.rejected,
            drafts=run.drafts,
            accepted=run.accepted,
            is_whole=run.is_whole,
        )

    @property
    def current_run(self) -> RunSummary | None:
        """The run under way; None when the engine is empty."""
        return None if self._run is None else self._summary(self._run, finished=False)

    def snapshot(self) -> MetricsSnapshot:
        """The counters now."""
        last, run = self._last, self._run
        requests = self._num_requests
        if last is None:
            return MetricsSnapshot(
                num_requests=requests,
                num_finished=self._num_finished,
                figures=tuple(self._figures.items()),
            )
        seconds = self._window_s
        shares = run or self.runs[-1] if (run or self.runs) else None
        positions = shares.token_positions if shares else 0
        return MetricsSnapshot(
            output_tokens_per_s=self._window_output / seconds if seconds > 0 else None,
            prompt_tokens_per_s=self._window_prompt / seconds if seconds > 0 else None,
            steps_per_s=len(self._window) / seconds if seconds > 0 else None,
            slot_occupancy=shares.useful / shares.slot_steps if shares else 0.0,
            padding_waste=shares.padding / positions if shares and positions else 0.0,
            dead_work=shares.dead / positions if shares and positions else 0.0,
            # An observed server may not tell its budget, or have no pool of blocks.
            batch_fill=last.tokens.total / (last.max_num_batched_tokens or math.inf),
            kv_tokens=last.kv_tokens,
            kv_cache_usage=last.kv_cache_usage,
            ttft_p50_s=percentile(self._ttft, 0.5),
            ttft_p95_s=percentile(self._ttft, 0.95),
            itl_p50_s=percentile(self._itl, 0.5),
            itl_p95_s=percentile(self._itl, 0.95),
            tpot_p50_s=percentile(self._tpot, 0.5),
            num_finished=self._num_finished,
            num_requests=requests,
            step_s=last.end_s - last.start_s,
            num_steps=shares.last_step - shares.first_step + 1 if shares else 0,
            num_output_tokens=shares.output_tokens if shares else 0,
            throughput_history=tuple(self._history),
            prefix_hit_rate=hit_rate(shares.cached_tokens, shares.prefilled_tokens) if shares else None,
            figures=tuple(self._figures.items()),
            rejected_work=shares.rejected / positions if shares and positions else 0.0,
            acceptance_rate=acceptance_rate(shares.accepted, shares.drafts) if shares else None,
        )
