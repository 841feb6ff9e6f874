"""The same requests in several modes: what each cost, and whether every output is the same.

Folded from the records alone, so a recorded trace is compared like a run (`engine.mode_runs` makes one).
Steps and milliseconds a step are kept apart: the first is the scheduling's doing, the second also the
machine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal

import msgspec

from engine.config import EngineConfig
from engine.runner import Ready
from engine.stream.differences import Difference, candidates, differences_of
from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import Record, StepRecord, Verification

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
        slots: `max_num_seqs`, the largest of its steps.
        finish_steps: the step of each request's last useful token; None: it has none.
        release_steps: the step that freed its slot.
        finish_reasons: stop, length, error or ignored.
        prompt_tokens, output_tokens: fed prompt tokens, sampled tokens.
        token_positions: of all steps' tensors: prompt, decode, recomputed, dead, padding and rejected.
        padding_tokens, dead_tokens, recomputed_tokens: those spent on nothing, on finished requests, and
            fed again after a preemption.
        rejected_tokens: positions spent on drafts that came to nothing.
        drafts, accepted_drafts: drafts fed, and those accepted.
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
    slots: int
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
    rejected_tokens: int = 0
    drafts: int = 0
    accepted_drafts: int = 0
    verified: tuple[Verification | None, ...] = ()


class ComparedRequest(msgspec.Struct, frozen=True):
    """A request as it was asked."""

    label: str
    prompt: str
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it; `modes` in the order they ran, each compared with the first.

    Attributes:
        max_num_batched_tokens: None: an observed server does not tell it.
        is_one_code: all went through the same model code; else a step's time says nothing of the schedule.
    """

    identical: bool
    verdict: Verdict
    model: str
    device: str
    dtype: str
    exact: bool
    threads: int
    max_num_seqs: int
    max_num_batched_tokens: int | None
    requests: tuple[ComparedRequest, ...]
    modes: dict[str, ModeResult]
    differences: tuple[Difference, ...]
    is_one_code: bool = True


def compare(records: Mapping[str, Sequence[Record]], ready: Ready, config: EngineConfig) -> Comparison:
    """Fold the records of each mode into a comparison.

    Raises:
        ValueError: there is no mode, or the modes did not run the same requests.
    """
    if not records:
        raise ValueError("there is no mode to compare")
    ledgers = {mode: Ledger.of(run) for mode, run in records.items()}
    first = next(iter(ledgers))
    asked = [_asked(story) for story in ledgers[first].in_order]
    for mode, ledger in ledgers.items():
        if [_asked(story)[1] for story in ledger.in_order] != [one for _, one in asked]:
            raise ValueError(f"{mode} and {first} did not run the same requests")
    results = {mode: mode_result(records[mode], ledgers[mode]) for mode in records}
    tops = {mode: candidates(run) for mode, run in records.items()}
    differences = tuple(
        difference for mode in list(records)[1:] for difference in differences_of(mode, first, ledgers, tops)
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
    stories = ledger.in_order
    lanes = sum(step.max_num_seqs for step in steps)
    useful = sum(story.steps_fed for story in stories)
    elapsed = sum(step.end_s - step.start_s for step in steps)
    outputs = sum(len(story.output_token_ids) for story in stories)
    has_waves = any(record.events.barrier for record in records)
    return ModeResult(
        steps=len(steps),
        slots=max((step.max_num_seqs for step in steps), default=0),
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
        texts=tuple(ledger.output_text(story) for story in stories),
        elapsed_s=elapsed,
        step_ms_median=1000 * median([s.end_s - s.start_s for s in steps]) if steps else 0.0,
        output_tokens_per_s=outputs / elapsed if elapsed > 0 else 0.0,
        streaming=_streaming(stories),
        at_barrier=_at_barrier(stories) if has_waves else None,
        preemptions=sum(story.num_preemptions for story in stories),
        errors=tuple(error for record in records for error in record.events.errors),
        cached_tokens=sum(story.num_cached_tokens for story in stories),
        rejected_tokens=sum(step.tokens.rejected for step in steps),
        drafts=sum(story.num_drafts for story in stories),
        accepted_drafts=sum(story.num_accepted for story in stories),
        verified=tuple(story.verified for story in stories),
    )


def _asked(story: RequestStory) -> tuple[ComparedRequest, object]:
    """A request as it was asked, and what makes it the same as another: the prompt by its tokens, or by its
    text where an observed server does not tell these."""
    request = story.request
    ids = request.prompt_token_ids
    prompt = ids if min(ids, default=0) >= 0 else (request.prompt_text, len(ids))
    asked = ComparedRequest(
        request.label, request.prompt_text, len(ids), request.max_tokens, request.ignore_eos
    )
    return asked, (prompt, request.max_tokens, request.ignore_eos)


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


def _verdict(differences: Sequence[Difference], results: Mapping[str, ModeResult], dtype: str) -> Verdict:
    # Of an observed server the precision may be any, or not told.
    is_half = not dtype.endswith(("float32", "float64"))
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
