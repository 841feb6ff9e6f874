"""A run as two tables in CSV (RFC 4180): a row a request, and a row a step.

Texts are those of the run, to the letter: what a spreadsheet makes of one that begins with `=` is its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from cbtui.export.run import RecordedRun
from engine.stream.ledger import RequestStory
from engine.stream.records import StepRecord

REQUESTS, STEPS = "requests.csv", "steps.csv"
Cell = str | int | float | None


def tables(run: RecordedRun) -> dict[str, str]:
    """Both files by their names. Times are engine seconds, an empty cell is what there is not."""
    return {
        REQUESTS: _csv([_request_row(run, story) for story in run.stories]),
        STEPS: _csv([_step_row(run, step) for step in run.steps]),
    }


def _request_row(run: RecordedRun, story: RequestStory) -> dict[str, Cell]:
    """A request. Names are the fields' own (`RequestRecord`, `RequestStory`)."""
    request, finish = story.request, story.finish
    return {
        "request_id": story.request_id,
        "letter": run.badge(story.request_id).letter,
        "label": request.label,
        "slot": next((turn.slot for turn in reversed(story.turns) if turn.kind in ("entered", "back")), None),
        "finish_reason": finish.reason if finish else None,
        "prompt_tokens": len(request.prompt_token_ids),
        "template_tokens": request.num_template_tokens,
        "cached_tokens": story.num_cached_tokens,
        "drafts": story.num_drafts,
        "accepted_drafts": story.num_accepted,
        "output_tokens": len(story.output_token_ids),
        "max_tokens": request.max_tokens,
        "arrival_s": _s(request.arrival_s),
        "first_scheduled_s": _s(story.first_scheduled_s),
        "first_token_s": _s(story.token_times[0] if story.token_times else None),
        "end_s": _s(finish.time_s if finish else None),
        "release_s": _s(story.release_s),
        "queue_s": _s(story.queue_s),
        "ttft_s": _s(story.ttft_s),
        "tpot_s": _s(story.tpot_s),
        "e2e_s": _s(story.e2e_s),
        "submitted_step": story.submitted_step,
        "first_step": story.first_step,
        "first_token_step": story.token_steps[0] if story.token_steps else None,
        "last_token_step": story.token_steps[-1] if story.token_steps else None,
        "release_step": story.release_step,
        "steps_fed": story.steps_fed,
        "dead_steps": story.dead_steps,
        "preemptions": story.num_preemptions,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        # Of another client's request 0 means that it has none, or that it is not told.
        "seed": request.seed if run.header.provenance is None else request.seed or None,
        "priority": request.priority,
        "error": finish.error if finish else None,
        "prompt": request.prompt_text,
        "output": run.ledger.output_text(story),
    }


def _step_row(run: RecordedRun, step: StepRecord) -> dict[str, Cell]:
    """A step. Names are the fields' own (`StepRecord`)."""
    tokens, events = step.tokens, step.events
    alive = [segment for segment in step.segments if segment.kind != "dead"]
    return {
        "step": step.step,
        "mode": step.mode,
        "policy": step.policy,
        "layout": step.layout,
        "start_s": _s(step.start_s),
        "end_s": _s(step.end_s),
        "schedule_s": _s(step.schedule_s),
        "forward_s": _s(step.forward_s),
        "sample_s": _s(step.sample_s),
        "rows": step.shape[0],
        "columns": step.shape[1],
        "num_keys": step.num_keys,
        "token_positions": tokens.total,
        "prompt_tokens": tokens.prompt,
        "decode_tokens": tokens.decode,
        "recomputed_tokens": tokens.recomputed,
        "dead_tokens": tokens.dead,
        "padding_tokens": tokens.padding,
        "rejected_tokens": tokens.rejected,
        "output_tokens": sum(len(segment.outputs) for segment in alive),
        "running": len(alive),
        "dead": len(step.segments) - len(alive),
        "waiting": step.waiting_count,
        "max_num_seqs": step.max_num_seqs,
        "max_num_batched_tokens": step.max_num_batched_tokens,
        "kv_tokens": step.kv_tokens,
        "free_blocks": step.free_blocks,
        "num_blocks": step.num_blocks,
        "submitted": len(events.submitted),
        "admitted": len(events.admitted),
        "preempted": len(events.preempted),
        "finished": len(events.finished),
        "released": len(events.released),
        "barrier": int(events.barrier),
        "failed": int(step.failed),
        "requests": " ".join(run.badge(segment.request_id).letter for segment in step.segments),
    }


def _s(seconds: float | None) -> float | None:
    """Whole microseconds: the rest is how floating point adds up."""
    return None if seconds is None else round(seconds, 6)


def _csv(rows: Sequence[dict[str, Cell]]) -> str:
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
