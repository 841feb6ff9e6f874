"""The mask has three builders that share no code; they agree on every step."""

from __future__ import annotations

import pytest
import torch

from engine.step.geometry import ArenaShape, lay_out, read_cells
from engine.step.mask import query_runs
from engine.step.plan import Layout, Plan, PlanRow
from engine.torch_runner.groups import Group, Strided, key_cells
from engine.torch_runner.reference_mask import dense_mask
from engine.torch_runner.step import Step

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
    "with a dead row whose blocks are full": [_row(1, 1, 2, [6]), _dead(3, 6, [2, 3])],
    "decodes at home": [_row(0, 1, 4, [0, 1]), _row(1, 1, 7, [3, 4, 5]), _row(2, 1, 0, [6])],
    "decodes and a dead row at home": [
        _row(0, 1, 4, [0, 1]),
        _dead(1, 7, [4, 5, 6]),
        _row(2, 1, 8, [8, 9, 10]),
    ],
    "home runs with a gap": [_row(0, 1, 4, [0, 1]), _row(1, 1, 4, [3, 4]), _row(4, 1, 5, [12, 13])],
    "two at home, one not": [_row(0, 1, 4, [0, 1]), _row(1, 1, 7, [9, 4, 5]), _row(2, 1, 8, [6, 7, 8])],
    "a view that would reach past the arena": [_row(0, 1, 40, list(range(14))), _row(4, 1, 3, [14, 15])],
    "decodes around a prefill, at home": [
        _row(0, 1, 4, [0, 1]),
        _row(1, 4, 0, [3, 4]),
        _row(2, 1, 5, [6, 7]),
    ],
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
    for group in step.groups(window).members:
        shape = (group.num_sequences, group.num_queries, group.num_keys)
        places = torch.arange(columns * geometry.shape[0])[group.queries].view(shape[:2])
        cells = group.read(torch.arange(SHAPE.num_cells).view(1, -1, 1)).reshape(shape[0], shape[2])
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


def _groups(rows: list[PlanRow], layout: Layout = "ragged", shape: ArenaShape = SHAPE) -> list[Group]:
    plan = Plan(epoch=0, arena_id=0, step=0, layout=layout, rows=rows)
    return Step(plan, shape, CPU, torch.float64).groups(None).members


def test_a_padded_group_is_the_whole_rectangle() -> None:
    rows = STEPS["decode, whole prefill, cut prefill"]
    (group,) = _groups(rows, "padded")
    assert (group.num_sequences, group.num_queries) == (3, 4)
    plan = Plan(epoch=0, arena_id=0, step=0, layout="padded", rows=rows)
    assert group.num_keys == lay_out(plan, SHAPE).num_keys


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_rows_at_home_are_one_view(layout: Layout) -> None:
    (group,) = _groups(STEPS["decodes and a dead row at home"], layout)
    assert (group.num_sequences, group.num_queries, group.num_keys) == (3, 1, 9)
    assert group.cells == Strided(0, 12)
    assert group.queries == slice(0, 3)


def test_rows_that_are_not_at_home_are_gathered_beside_those_that_are() -> None:
    home, gathered = _groups(STEPS["two at home, one not"])
    assert home.cells == Strided(0, 18) and home.num_sequences == 2
    assert isinstance(gathered.cells, torch.Tensor) and gathered.num_sequences == 1


def test_a_much_longer_row_has_a_call_of_its_own() -> None:
    shape = ArenaShape(num_blocks=16, block_size=64, num_slots=4)
    rows = [_row(slot, 1, n - 1, [slot * 4 + i for i in range(4)]) for slot, n in enumerate((60, 200, 210))]
    assert [group.num_sequences for group in _groups(rows, shape=shape)] == [1, 2]
    # A padded layout pays for the whole rectangle, as drawn.
    assert [group.num_keys for group in _groups(rows, "padded", shape)] == [210]


def test_equal_lengths_need_no_mask() -> None:
    (group,) = _groups([_row(0, 1, 4, [0, 1]), _row(1, 1, 4, [3, 4])])
    assert group.bias is None


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
