"""The same requests in several modes: what each cost, and whether every output is the same.

`run_modes` runs them; everything else is folded from the records alone, so a recorded trace can be
compared like a run. Steps and milliseconds a step are kept apart: the first is the scheduling's doing,
the second also the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from statistics import fmean, median
from typing import Literal, NoReturn

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.live.feed import Entry, Feed
from engine.runner import EncodedPrompt, ModelRunner, Ready, RunnerError
from engine.session import drain, submit
from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import NEAR_TIE, Record, StepRecord, Verification

#: Steps of a mode run unmeasured first, so that no mode pays for the machine's warming up.
WARM_UP_STEPS = 3

#: `half_precision`: outputs differ, and in half precision a batch can do that: nothing is claimed.
#: `not_alone`: they are the same, or nearly, but not what the model gives a request alone.
Verdict = Literal["identical", "near_tie", "half_precision", "not_alone", "mismatch", "failed"]
#: Verdicts no right engine leads to.
FAULTS: tuple[Verdict, ...] = ("not_alone", "mismatch", "failed")


class Latency(msgspec.Struct, frozen=True):
    """Means over the requests that produced tokens, from the run's beginning; None if there are none.

    Attributes:
        ttft_steps, ttft_s: to the first output token, waiting included.
        completion_steps, completion_s: to the last one.
    """

    ttft_steps: float | None
    ttft_s: float | None
    completion_steps: float | None
    completion_s: float | None


class ModeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a mode's run cost and produced. Lists are in request order. Seconds are engine seconds.

    Attributes:
        steps: forward passes.
        finish_steps: the step of each request's last useful token; None: it has none.
        release_steps: the step that freed its slot.
        finish_reasons: stop, length, error or ignored.
        prompt_tokens, output_tokens: fed prompt tokens, sampled tokens.
        token_positions: of all steps' tensors: prompt, decode, recomputed, dead and padding.
        padding_tokens, dead_tokens, recomputed_tokens: those spent on nothing, on finished requests, and
            fed again after a preemption.
        slot_occupancy: slots that fed a useful token / `max_num_seqs`, mean over the steps, 0-1.
        token_ids, texts: outputs.
        elapsed_s, step_ms_median: the whole run, and a step.
        output_tokens_per_s: `output_tokens` / `elapsed_s`.
        streaming: when each token is delivered as it is made.
        at_barrier: when a wave's outputs are delivered together at its end, as static batching without
            streaming does; None in modes without waves.
        preemptions: requests that gave way, in all.
        cached_tokens: tokens found in shared blocks instead of fed (prefix hits).
        errors: faults, one sentence each.
        verified: what came of checking each request alone; None: it was not checked.
    """

    steps: int
    finish_steps: tuple[int | None, ...]
    release_steps: tuple[int | None, ...]
    finish_reasons: tuple[str, ...]
    prompt_tokens: int
    output_tokens: int
    token_positions: int
    padding_tokens: int
    dead_tokens: int
    recomputed_tokens: int
    slot_occupancy: float
    token_ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    elapsed_s: float
    step_ms_median: float
    output_tokens_per_s: float
    streaming: Latency
    at_barrier: Latency | None
    preemptions: int
    errors: tuple[str, ...]
    cached_tokens: int = 0
    verified: tuple[Verification | None, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """Where a request's outputs in two modes first part.

    Attributes:
        request: its place in the list of requests.
        mode, other: the mode compared, and the one it is compared with.
        output_index: which output token, from 0.
        step, other_step: the step that made it in each; None: there it had ended.
        token_id, other_token_id, text, other_text: the two tokens.
        gap: how far apart the two candidates' log probabilities lie, the larger of both modes' views; None
            where one of them is not among the likeliest two.
        near_tie: `gap` is below `NEAR_TIE`.
    """

    request: int
    mode: str
    other: str
    output_index: int
    step: int | None
    other_step: int | None
    token_id: int | None
    other_token_id: int | None
    text: str
    other_text: str
    gap: float | None
    near_tie: bool


class ComparedRequest(msgspec.Struct, frozen=True):
    """A request as it was asked."""

    label: str
    prompt: str
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it; `modes` in the order they ran, each compared with the first."""

    identical: bool
    verdict: Verdict
    model: str
    device: str
    dtype: str
    exact: bool
    threads: int
    max_num_seqs: int
    max_num_batched_tokens: int
    requests: tuple[ComparedRequest, ...]
    modes: dict[str, ModeResult]
    differences: tuple[Difference, ...]


def run_modes(
    runner: ModelRunner,
    ready: Ready,
    requests: Sequence[PromptRequest],
    encoded: Sequence[EncodedPrompt],
    config: EngineConfig,
    modes: Sequence[str],
    token_bytes: Callable[[int], bytes] | None = None,
    on_record: Callable[[str, Record], None] | None = None,
    *,
    arrivals: float | None = None,
) -> dict[str, list[Record]]:
    """Run the requests in each mode, in a fresh engine each, and return the records.

    Every mode is warmed up before any is measured.

    Args:
        on_record: told of every measured record, outside of the engine's clock.
        arrivals: requests arrive at their own times, so many times as fast; None: all at once.

    Raises:
        RunnerError: the runner died, or there is no memory for the KV cache.
    """

    def engine_in(mode: str) -> Engine:
        in_mode = msgspec.structs.replace(config, mode=mode)
        return Engine(in_mode, runner, ready.info, token_bytes=token_bytes, n_top=2, epoch=ready.epoch)

    for mode in modes:
        engine = engine_in(mode)
        for request, prompt in zip(requests[: config.max_num_seqs], encoded, strict=False):
            submit(engine, request, prompt)
        for record in islice(drain(engine), WARM_UP_STEPS):
            if isinstance(record, StepRecord) and record.failed:
                raise RunnerError("; ".join(record.events.errors) or "the first forward failed")
    records: dict[str, list[Record]] = {}
    for mode in modes:
        engine = engine_in(mode)
        entries = [Entry(n, *pair) for n, pair in enumerate(zip(requests, encoded, strict=True), 1)]
        feed = Feed(entries, arrivals, submit, on_refused=_refuse)
        records[mode] = []
        for record in drain(engine, feed=feed):
            records[mode].append(record)
            if on_record is not None:
                on_record(mode, record)
    return records


def _refuse(entry: Entry, why: str) -> NoReturn:
    """Requests that do not all run cannot be compared."""
    raise ValueError(f"request {entry.number}: {why}")


def compare(records: Mapping[str, Sequence[Record]], ready: Ready, config: EngineConfig) -> Comparison:
    """Fold the records of each mode into a comparison.

    Raises:
        ValueError: there is no mode, or the modes did not run the same requests.
    """
    if not records:
        raise ValueError("there is no mode to compare")
    ledgers = {mode: folded(run) for mode, run in records.items()}
    first = next(iter(ledgers))
    asked = [_asked(story) for story in _in_order(ledgers[first])]
    for mode, ledger in ledgers.items():
        if [_asked(story) for story in _in_order(ledger)] != asked:
            raise ValueError(f"{mode} and {first} did not run the same requests")
    results = {mode: mode_result(records[mode], ledgers[mode]) for mode in records}
    tops = {mode: _candidates(run) for mode, run in records.items()}
    differences = tuple(
        difference for mode in list(records)[1:] for difference in _differences(mode, first, ledgers, tops)
    )
    info = ready.info
    return Comparison(
        identical=not differences and not any(result.errors for result in results.values()),
        verdict=_verdict(differences, results, info.dtype),
        model=info.name,
        device=info.device,
        dtype=info.dtype,
        exact=info.exact,
        threads=info.num_threads,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        requests=tuple(request for request, _ in asked),
        modes=results,
        differences=differences,
    )


def mode_result(records: Sequence[Record], ledger: Ledger) -> ModeResult:
    """What one run cost and produced; `ledger` has taken the records in."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    stories = _in_order(ledger)
    lanes = sum(step.max_num_seqs for step in steps)
    useful = sum(story.steps_fed for story in stories)
    elapsed = sum(step.end_s - step.start_s for step in steps)
    outputs = sum(len(story.output_token_ids) for story in stories)
    has_waves = any(record.events.barrier for record in records)
    return ModeResult(
        steps=len(steps),
        finish_steps=tuple(story.token_steps[-1] if story.token_steps else None for story in stories),
        release_steps=tuple(story.release_step for story in stories),
        finish_reasons=tuple(story.finish.reason if story.finish else "" for story in stories),
        prompt_tokens=sum(step.tokens.prompt for step in steps),
        output_tokens=outputs,
        token_positions=sum(step.tokens.total for step in steps),
        padding_tokens=sum(step.tokens.padding for step in steps),
        dead_tokens=sum(step.tokens.dead for step in steps),
        recomputed_tokens=sum(step.tokens.recomputed for step in steps),
        slot_occupancy=useful / lanes if lanes else 0.0,
        token_ids=tuple(tuple(story.output_token_ids) for story in stories),
        texts=tuple(output_text(ledger, story) for story in stories),
        elapsed_s=elapsed,
        step_ms_median=1000 * median([s.end_s - s.start_s for s in steps]) if steps else 0.0,
        output_tokens_per_s=outputs / elapsed if elapsed > 0 else 0.0,
        streaming=_streaming(stories),
        at_barrier=_at_barrier(stories) if has_waves else None,
        preemptions=sum(story.num_preemptions for story in stories),
        errors=tuple(error for record in records for error in record.events.errors),
        cached_tokens=sum(story.num_cached_tokens for story in stories),
        verified=tuple(story.verified for story in stories),
    )


def output_text(ledger: Ledger, story: RequestStory) -> str:
    """A finished request's output as text: without the token, or from the string on, that stopped it."""
    return ledger.output_text(story)


def folded(records: Sequence[Record]) -> Ledger:
    """The stories of a whole run."""
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def _in_order(ledger: Ledger) -> list[RequestStory]:
    return sorted(ledger.stories.values(), key=lambda story: story.index)


def _asked(story: RequestStory) -> tuple[ComparedRequest, tuple[int, ...]]:
    request = story.request
    ids = request.prompt_token_ids
    asked = ComparedRequest(
        request.label, request.prompt_text, len(ids), request.max_tokens, request.ignore_eos
    )
    return asked, ids


def _streaming(stories: Sequence[RequestStory]) -> Latency:
    done = [story for story in stories if story.token_steps]
    return Latency(
        _mean([story.token_steps[0] for story in done]),
        _mean([story.token_times[0] - story.request.arrival_s for story in done]),
        _mean([story.token_steps[-1] for story in done]),
        _mean([story.token_times[-1] - story.request.arrival_s for story in done]),
    )


def _at_barrier(stories: Sequence[RequestStory]) -> Latency:
    """First and last token arrive together, when the wave gives the slot back."""
    done = [s for s in stories if s.token_steps and s.release_step is not None and s.release_s is not None]
    steps = _mean([story.release_step or 0 for story in done])
    seconds = _mean([(story.release_s or 0.0) - story.request.arrival_s for story in done])
    return Latency(steps, seconds, steps, seconds)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


_Candidates = dict[tuple[str, int], dict[int, float]]


def _candidates(records: Sequence[Record]) -> _Candidates:
    """Log probabilities known of each sampled place: by (request id, output index), by token id."""
    known: _Candidates = {}
    counts: dict[str, int] = {}
    for record in records:
        for segment in record.segments if isinstance(record, StepRecord) else ():
            if segment.sampled is None:
                continue
            index = counts.get(segment.request_id, 0)
            counts[segment.request_id] = index + 1
            known[segment.request_id, index] = dict(segment.top)
            if segment.logprob is not None:
                known[segment.request_id, index][segment.sampled] = segment.logprob
    return known


def _differences(
    mode: str, other: str, ledgers: Mapping[str, Ledger], tops: Mapping[str, _Candidates]
) -> list[Difference]:
    found = []
    pairs = zip(_in_order(ledgers[mode]), _in_order(ledgers[other]), strict=True)
    for place, (story, reference) in enumerate(pairs):
        ids, expected = story.output_token_ids, reference.output_token_ids
        if ids == expected:
            continue
        index = next(
            (i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b),
            min(len(ids), len(expected)),
        )
        token, other_token = _at(ids, index), _at(expected, index)
        views = [
            tops[name].get((one.request_id, index), {}) for name, one in ((mode, story), (other, reference))
        ]
        gap = _gap(views, token, other_token)
        found.append(
            Difference(
                place,
                mode,
                other,
                index,
                _at(story.token_steps, index),
                _at(reference.token_steps, index),
                token,
                other_token,
                "" if token is None else ledgers[mode].decode([token]),
                "" if other_token is None else ledgers[other].decode([other_token]),
                gap,
                gap is not None and gap < NEAR_TIE,
            )
        )
    return found


def _at(values: Sequence[int], index: int) -> int | None:
    return values[index] if index < len(values) else None


def _gap(views: Sequence[dict[int, float]], token: int | None, other: int | None) -> float | None:
    if token is None or other is None or not all(token in view and other in view for view in views):
        return None
    return max(abs(view[token] - view[other]) for view in views)


def _verdict(differences: Sequence[Difference], results: Mapping[str, ModeResult], dtype: str) -> Verdict:
    is_half = dtype in ("float16", "bfloat16")
    if any(result.errors for result in results.values()):
        return "failed"
    if not is_half and any(not difference.near_tie for difference in differences):
        return "mismatch"
    verified = [one for result in results.values() for one in result.verified if one is not None]
    if any(one.verdict == "differs" for one in verified):
        return "not_alone"
    if not differences:
        return "identical"
    return "near_tie" if all(difference.near_tie for difference in differences) else "half_precision"
