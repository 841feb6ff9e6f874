"""A run in the Trace Event Format, the JSON that ui.perfetto.dev and chrome://tracing open.

Three processes: the slots (a track each: who was prefilled, decoded, or held dead), the engine (its steps,
and counters), and the queue (a span for every wait of every request). Times are microseconds on the engine
clock.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cbtui.export.run import RecordedRun
from cbtui.looks.tokens import prose
from engine.stream.records import QuietRecord, StepRecord, TraceHeader

SLOTS, ENGINE, QUEUE = 1, 2, 3
#: Thread 0 means something of its own to Perfetto.
_FIRST_TRACK = 1
_PROMPT_SHOWN = 120

Event = dict[str, Any]


def trace_json(run: RecordedRun) -> bytes:
    """The whole file."""
    events = [*_names(run), *_slot_spans(run), *_waits(run)]
    for step in run.steps:
        events += _step_events(step)
        events += _counters(step)
    events += _marks(run)
    return msgspec.json.encode(
        {"displayTimeUnit": "ms", "otherData": _about(run.header), "traceEvents": events},
    )


def _about(header: TraceHeader) -> dict[str, str]:
    about = {
        "program": "cbtui",
        "model": header.model,
        "device": header.device,
        "dtype": header.dtype,
        "machine": header.machine,
    }
    if header.provenance is not None:
        known = header.provenance
        about["engine"] = known.engine
        about |= {f"inferred: {fact}": why for fact, why in known.inferred}
        about |= {f"absent: {fact}": why for fact, why in known.absent}
    return about


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _span(process: int, track: int, name: str, start_s: float, end_s: float, args: Event) -> Event:
    start = _us(start_s)
    return {
        "ph": "X",
        "pid": process,
        "tid": track,
        "name": name,
        "cat": "cbtui",
        "ts": start,
        "dur": max(0.0, round(_us(end_s) - start, 3)),
        "args": args,
    }


def _names(run: RecordedRun) -> Iterator[Event]:
    """What the processes and tracks are called, and in which order they stand."""

    def meta(what: str, process: int, track: int, **args: object) -> Event:
        return {"ph": "M", "name": what, "pid": process, "tid": track, "args": args}

    for process, name in ((SLOTS, "Slots"), (ENGINE, "Engine"), (QUEUE, "Queue")):
        yield meta("process_name", process, 0, name=name)
        yield meta("process_sort_index", process, 0, sort_index=process)
    yield meta("thread_name", ENGINE, _FIRST_TRACK, name="steps")
    for slot in range(run.num_slots):
        yield meta("thread_name", SLOTS, slot + _FIRST_TRACK, name=f"slot {slot}")
        yield meta("thread_sort_index", SLOTS, slot + _FIRST_TRACK, sort_index=slot)


def _slot_spans(run: RecordedRun) -> Iterator[Event]:
    for stretch in run.stretches():
        story = run.ledger[stretch.request_id]
        start_s, end_s = run.steps[stretch.first].start_s, run.steps[stretch.last].end_s
        args: Event = {
            "request_id": stretch.request_id,
            "first_step": run.steps[stretch.first].step,
            "steps": stretch.last - stretch.first + 1,
            "prompt_tokens": len(story.request.prompt_token_ids),
            "prompt": prose(story.request.prompt_text[:_PROMPT_SHOWN]),
        }
        if story.finish is not None:
            args["finish_reason"] = story.finish.reason
            args["output_tokens"] = story.finish.num_output_tokens
        name = f"{run.badge(stretch.request_id).letter} {stretch.kind}"
        yield _span(SLOTS, stretch.slot + _FIRST_TRACK, name, start_s, end_s, args)


def _waits(run: RecordedRun) -> Iterator[Event]:
    """A pair of asynchronous events for every wait: waits overlap, which spans of a track must not."""
    number = 0
    for story in run.stories:
        name = f"{run.badge(story.request_id).letter} waits"
        since: float | None = None
        waits: list[tuple[float, float]] = []
        for turn in story.turns:
            if turn.kind in ("arrived", "gave way"):
                since = turn.time_s
            elif since is not None and turn.kind in ("entered", "back", "ended"):
                waits.append((since, turn.time_s))
                since = None
        if since is not None:
            waits.append((since, run.end_s))
        for start, end in waits:
            number += 1
            common = {"pid": QUEUE, "tid": _FIRST_TRACK, "cat": "queue", "id": number, "name": name}
            yield common | {"ph": "b", "ts": _us(start), "args": {"request_id": story.request_id}}
            yield common | {"ph": "e", "ts": _us(max(start, end)), "args": {}}


def _step_events(step: StepRecord) -> Iterator[Event]:
    """A step, and where in it the time went."""
    kind = "packed row" if step.layout == "ragged" else "rectangle"
    args = {
        "mode": step.mode,
        "policy": step.policy,
        "shape": f"{kind} [{step.shape[0]}, {step.shape[1]}]",
        "keys": step.num_keys,
        "waiting": step.waiting_count,
    }
    if step.failed:
        args["failed"] = "; ".join(step.events.errors)
    yield _span(ENGINE, _FIRST_TRACK, f"step {step.step}", step.start_s, step.end_s, args)
    at = step.start_s
    for name, seconds in (
        ("schedule", step.schedule_s),
        ("forward", step.forward_s),
        ("sample", step.sample_s),
    ):
        end = min(at + seconds, step.end_s)
        if end > at:
            yield _span(ENGINE, _FIRST_TRACK, name, at, end, {})
        at = end


def _counters(step: StepRecord) -> Iterator[Event]:
    def counter(name: str, at_s: float, **values: float) -> Event:
        return {"ph": "C", "pid": ENGINE, "tid": 0, "name": name, "ts": _us(at_s), "args": values}

    tokens, seconds = step.tokens, step.end_s - step.start_s
    made = sum(len(segment.outputs) for segment in step.segments)
    yield counter(
        "token positions",
        step.start_s,
        prompt=tokens.prompt,
        decode=tokens.decode,
        recomputed=tokens.recomputed,
        dead=tokens.dead,
        padding=tokens.padding,
        rejected=tokens.rejected,
    )
    yield counter("running", step.start_s, requests=sum(s.kind != "dead" for s in step.segments))
    yield counter("waiting", step.start_s, requests=step.waiting_count)
    yield counter("output tokens/s", step.start_s, tokens=round(made / seconds, 3) if seconds > 0 else 0.0)
    if step.num_blocks:
        used = 100 * (step.num_blocks - step.free_blocks) / step.num_blocks
        yield counter("KV cache usage (%)", step.end_s, used=round(used, 3))
    yield counter("KV tokens", step.end_s, tokens=step.kv_tokens)


def _marks(run: RecordedRun) -> Iterator[Event]:
    """What concerns the whole engine at one moment."""

    def mark(name: str, at_s: float) -> Event:
        at = {"pid": ENGINE, "tid": _FIRST_TRACK, "ts": _us(at_s)}
        return {"ph": "i", "name": name, "cat": "cbtui", "s": "g", "args": {}} | at

    last = run.steps[-1]
    for record in run.records:
        begin = record.time_s if isinstance(record, QuietRecord) else record.start_s
        end = record.time_s if isinstance(record, QuietRecord) else record.end_s
        for change in record.events.changed:
            yield mark(f"{change.name}: {change.before} → {change.after}", begin)
        for gone in record.events.preempted:
            yield mark(f"{run.badge(gone.request_id).letter} preempted", begin)
        if record.events.barrier:
            yield mark("barrier", end)
        for error in record.events.errors:
            yield mark(f"error: {prose(error)}", end)
    # A counter is drawn up to its next value: this one ends them.
    yield {
        "ph": "C",
        "pid": ENGINE,
        "tid": 0,
        "name": "output tokens/s",
        "ts": _us(last.end_s),
        "args": {"tokens": 0.0},
    }
