"""From a schedule to the rows of a plan: what a runner is asked for, free of the scheduler's objects."""

from __future__ import annotations

from collections.abc import Mapping

from engine.request import Request
from engine.scheduling.schedule import HeldSlot, Schedule
from engine.step.plan import PlanRow, SegmentKind


def plan_rows(schedule: Schedule, tables: Mapping[str, list[int]], n_top: int) -> list[PlanRow]:
    """The plan's rows, in slot order.

    Args:
        tables: block tables, by request id.
        n_top: likeliest tokens to report beside each sampled one, where a request asks for no more.
    """
    return [_plan_row(row, schedule, tables, n_top) for row in schedule.rows]


def _plan_row(
    row: Request | HeldSlot, schedule: Schedule, tables: Mapping[str, list[int]], n_top: int
) -> PlanRow:
    if isinstance(row, HeldSlot):
        request = row.request
        position = request.num_computed_tokens
        table = list(tables.get(request.request_id, ()))
        kv_len = position + 1 if row.has_blocks else 1
        return PlanRow(request.request_id, row.slot, "dead", [row.token_id], position, kv_len, table)
    assert row.slot is not None
    start = row.num_computed_tokens
    stop = start + schedule.counts[row.request_id]
    caught_up = stop == row.num_tokens
    return PlanRow(
        row.request_id,
        row.slot,
        _kind(row, start),
        row.tokens(start, stop),
        start,
        stop,
        list(tables[row.request_id]),
        row.params if caught_up else None,
        row.num_output_tokens,
        max(n_top, row.params.n_logprobs) if caught_up else 0,
    )


def _kind(request: Request, start: int) -> SegmentKind:
    """Decode feeds the one token sampled last; anything else, recomputation too, is prefill."""
    return "decode" if request.output_token_ids and start == request.num_tokens - 1 else "prefill"
