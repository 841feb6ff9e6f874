"""The mask has three builders that share no code; they agree on every step."""

from __future__ import annotations

import pytest
import torch

from engine.step.geometry import ArenaShape, lay_out, read_cells
from engine.step.mask import query_runs
from engine.step.plan import Layout, Plan, PlanRow
from engine.torch_runner.reference_mask import dense_mask
from engine.torch_runner.step import Step, key_cells

SHAPE = ArenaShape(num_blocks=16, block_size=3, num_slots=5)
CPU = torch.device("cpu")


def _row(slot: int, count: int, start: int, blocks: list[int]) -> PlanRow:
    return PlanRow(
        request_id=str(slot),
        slot=slot,
        kind="prefill" if count > 1 else "decode",
        token_ids=[1] * count,
        start_position=start,
        kv_len=start + count,
        block_ids=blocks,
    )


def _dead(slot: int, position: int, blocks: list[int]) -> PlanRow:
    kv_len = position + 1 if blocks else 1
    return PlanRow(
        request_id=str(slot), slot=slot, kind="dead", token_ids=[1], start_position=position, kv_len=kv_len,
        block_ids=blocks,
    )  # fmt: skip


STEPS = {
    "one whole prompt": [_row(0, 5, 0, [3, 1])],
    "two whole prompts": [_row(0, 3, 0, [3]), _row(1, 1, 0, [7])],
    "decodes of different lengths": [_row(0, 1, 4, [3, 9]), _row(1, 1, 7, [2, 4, 0]), _row(2, 1, 0, [11])],
    "decodes of equal lengths": [_row(0, 1, 4, [3, 9]), _row(2, 1, 4, [2, 4])],
    "decode, whole prefill, cut prefill": [
        _row(0, 1, 6, [5, 6, 7]),
        _row(2, 4, 0, [1, 0]),
        _row(4, 3, 5, [8, 2, 9]),
    ],
    "with a frozen dead row": [_dead(0, 5, [3, 4]), _row(1, 4, 2, [6, 5])],
    "with a dead row that gave its blocks back": [_row(1, 4, 2, [6, 5]), _dead(3, 9, [])],
}


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("window", [None, 1, 3, 100])
def test_groups_reference_mask_and_query_runs_agree(
    rows: list[PlanRow], layout: Layout, window: int | None
) -> None:
    plan = Plan(epoch=0, arena_id=0, step=0, layout=layout, rows=rows)
    geometry = lay_out(plan, SHAPE)
    columns = geometry.shape[1]
    step = Step(plan, SHAPE, CPU, torch.float64)

    mask = dense_mask(geometry, window, torch.float64, CPU)
    dense = {}
    for row in range(geometry.shape[0]):
        for column in range(columns):
            allowed = (mask[row, 0, column] == 0).nonzero().flatten().tolist()
            dense[row * columns + column] = sorted(step.key_cells[row, allowed].tolist())

    runs = {}
    for run in query_runs(geometry.spans, geometry.shape):
        start = run.start if window is None or run.segment is None else max(run.start, run.stop - window)
        runs[run.row * columns + run.column] = sorted(step.key_cells[run.row, start : run.stop].tolist())

    grouped = {}
    for group in step.groups(window):
        shape = (group.num_sequences, group.num_queries, group.num_keys)
        places = torch.arange(columns * geometry.shape[0])[group.queries].view(shape[:2])
        cells = torch.arange(SHAPE.num_cells)[group.cells].view(shape[0], shape[2])
        allowed = torch.ones(shape, dtype=torch.bool)
        if group.bias is not None:
            allowed &= group.bias[:, 0] == 0
        if group.causal:
            allowed &= torch.ones(shape[1:], dtype=torch.bool).tril()
        for s in range(shape[0]):
            for q in range(shape[1]):
                grouped[int(places[s, q])] = sorted(cells[s, allowed[s, q]].tolist())

    assert dense == runs
    assert grouped == dense
    assert len(grouped) == geometry.shape[0] * columns
    assert all(grouped.values()), "every query has at least one key"


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS.keys())
def test_vectorised_cells_equal_the_plain_ones(rows: list[PlanRow]) -> None:
    for row in rows:
        assert key_cells(row, SHAPE).tolist() == read_cells(row, SHAPE)


def test_a_padded_group_is_the_whole_rectangle() -> None:
    rows = STEPS["decode, whole prefill, cut prefill"]
    plan = Plan(epoch=0, arena_id=0, step=0, layout="padded", rows=rows)
    (group,) = Step(plan, SHAPE, CPU, torch.float64).groups(None)
    assert (group.num_sequences, group.num_queries) == (3, 4)
    assert group.num_keys == lay_out(plan, SHAPE).num_keys


def test_single_token_rows_share_one_group() -> None:
    rows = [*STEPS["decodes of different lengths"], _dead(4, 2, [14])]
    plan = Plan(epoch=0, arena_id=0, step=0, layout="ragged", rows=rows)
    (group,) = Step(plan, SHAPE, CPU, torch.float64).groups(None)
    assert (group.num_sequences, group.num_queries, group.num_keys) == (4, 1, 8)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (_row(0, 4, 0, [1]), "cannot hold"),
        (_row(0, 2, 0, [16]), "outside"),
        (_row(0, 2, 0, [-1]), "outside"),
        (_row(5, 2, 0, [1]), "slot 5"),
    ],
)
def test_a_broken_block_table_is_refused(row: PlanRow, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Step(Plan(epoch=0, arena_id=0, step=0, layout="ragged", rows=[row]), SHAPE, CPU, torch.float64)
