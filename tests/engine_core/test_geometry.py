"""Positions, cells and the mask of a plan, against plain ways to compute the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import SamplingParams
from engine.step.geometry import PAD_TOKEN_ID, ArenaShape, lay_out, read_cells
from engine.step.mask import query_runs
from engine.step.plan import Plan, PlanRow

ARENA = ArenaShape(num_blocks=64, block_size=4, num_slots=8)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    rows, free = [], list(range(ARENA.num_blocks))
    draw(st.randoms(use_true_random=False)).shuffle(free)
    for slot in sorted(draw(st.sets(st.integers(0, 7), min_size=1, max_size=5))):
        dead = draw(st.booleans()) and draw(st.booleans())
        start, count = draw(st.integers(0, 20)), 1 if dead else draw(st.integers(1, 6))
        stored = start if dead else start + count  # a dead row keeps what it had; its block may be full
        table = [free.pop() for _ in range(-(-stored // ARENA.block_size))]
        kept = draw(st.booleans()) if dead else True
        rows.append(
            PlanRow(
                f"r{slot}",
                slot,
                "dead" if dead else "prefill",
                [100 * slot + place for place in range(count)],
                start,
                start + count if kept else 1,
                table if kept else [],
                None if dead else SamplingParams(),
            )
        )
    return Plan(1, 0, 1, draw(st.sampled_from(["ragged", "padded"])), rows)


def dense_mask(plan: Plan) -> list[list[list[int]]]:
    """[row][query][key]: each sequence's own causal square placed on the diagonal, by hand."""
    ragged = plan.layout == "ragged"
    total_q = sum(len(r.token_ids) for r in plan.rows)
    longest = max(len(r.token_ids) for r in plan.rows)
    widths = [r.kv_len + (len(r.token_ids) < longest) for r in plan.rows]
    shape = (
        (1, total_q, sum(r.kv_len for r in plan.rows)) if ragged else (len(plan.rows), longest, max(widths))
    )
    mask = [[[0] * shape[2] for _ in range(shape[1])] for _ in range(shape[0])]
    query = key = 0
    for number, row in enumerate(plan.rows):
        q0 = query if ragged else longest - len(row.token_ids)
        k0 = key if ragged else shape[2] - row.kv_len
        at = 0 if ragged else number
        for i in range(len(row.token_ids)):
            for k in range(row.kv_len - len(row.token_ids) + i + 1):
                mask[at][q0 + i][k0 + k] = 1
        if not ragged:
            for padding in range(q0):
                mask[at][padding][0] = 1
        query += len(row.token_ids)
        key += row.kv_len
    return mask


@given(plans())
def test_runs_equal_the_dense_mask(plan: Plan) -> None:
    geometry = lay_out(plan, ARENA)
    drawn = [[[0] * geometry.num_keys for _ in range(geometry.shape[1])] for _ in range(geometry.shape[0])]
    for run in query_runs(geometry.spans, geometry.shape):
        for key in range(run.start, run.stop):
            drawn[run.row][run.column][key] = 1
    assert drawn == dense_mask(plan)


@given(plans())
def test_each_token_stands_at_its_own_position_and_writes_its_own_cell(plan: Plan) -> None:
    geometry = lay_out(plan, ARENA)
    columns = geometry.shape[1]
    used = set()
    for row, span in zip(plan.rows, geometry.spans, strict=True):
        for offset, token in enumerate(row.token_ids):
            place = span.row * columns + span.q_start + offset
            position = row.start_position + offset
            used.add(place)
            assert geometry.input_ids[place] == token
            assert geometry.position_ids[place] == position
            if row.kind == "dead":
                has_room = row.kv_len <= 4 * len(row.block_ids)
                free = 4 * row.block_ids[(row.kv_len - 1) // 4] + (row.kv_len - 1) % 4 if has_room else None
                assert geometry.write_index[place] == (free if has_room else ARENA.dead_cell(row.slot))
            else:
                block = row.block_ids[position // 4]
                assert geometry.write_index[place] == 4 * block + position % 4
    for place in set(range(geometry.shape[0] * columns)) - used:
        assert (geometry.input_ids[place], geometry.position_ids[place]) == (PAD_TOKEN_ID, 0)
        assert geometry.write_index[place] == ARENA.padding_cell


@given(plans())
def test_cells_read_end_with_the_rows_own_and_belong_to_nobody_else(plan: Plan) -> None:
    geometry = lay_out(plan, ARENA)
    owners: dict[int, str] = {}
    for row, span in zip(plan.rows, geometry.spans, strict=True):
        cells = read_cells(row, ARENA)
        assert len(cells) == row.kv_len == len(set(cells))
        last = span.row * geometry.shape[1] + span.q_start + span.q_len
        assert cells[-span.q_len :] == geometry.write_index[last - span.q_len : last]
        for cell in cells:
            assert cell < ARENA.num_cells and cell != ARENA.padding_cell
            assert owners.setdefault(cell, row.request_id) == row.request_id


@given(plans())
def test_sampled_places_are_last_tokens_of_rows_that_sample(plan: Plan) -> None:
    geometry = lay_out(plan, ARENA)
    sampling = [i for i, row in enumerate(plan.rows) if row.sampling is not None]
    assert geometry.sampled_rows == sampling
    assert [geometry.input_ids[place] for place in geometry.logits_indices] == [
        plan.rows[i].token_ids[-1] for i in sampling
    ]


def test_the_tutorials_drawing() -> None:
    rows = [
        PlanRow("A", 0, "prefill", [1, 2, 3], 0, 3, [0]),
        PlanRow("B", 1, "prefill", [4, 5, 6, 7], 0, 4, [1]),
    ]
    geometry = lay_out(Plan(1, 0, 1, "ragged", rows), ARENA)
    drawn = [
        "".join("#" if run.start <= key < run.stop else "." for key in range(geometry.num_keys))
        for run in query_runs(geometry.spans, geometry.shape)
    ]
    assert drawn == ["#......", "##.....", "###....", "...#...", "...##..", "...###.", "...####"]


def test_an_empty_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        lay_out(Plan(1, 0, 1, "ragged", []), ARENA)
