"""Fast route = reference route = transformers' own `generate` alone, in every layout and mix."""

from __future__ import annotations

import pytest
import torch

from engine.step.geometry import ArenaShape, own_cell
from engine.step.plan import Layout
from engine.torch_runner.forward import Route
from tests.torch_runner.sequences import (
    MIXED,
    Sequence,
    assert_equals_alone,
    generated,
    make_runner,
    run_step,
    three_sequences,
)

KINDS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss"]
LAYOUTS: list[Layout] = ["ragged", "padded"]
ROUTES: list[Route] = ["fast", "reference"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_at_home_give_what_generate_gives_alone(kind: str, layout: Layout) -> None:
    runner = make_runner(kind, "fast")
    sequences = three_sequences(at_home=True)
    for feeds in MIXED:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ROUTES)
def test_mixed_steps_give_what_generate_gives_alone(kind: str, layout: Layout, route: Route) -> None:
    runner = make_runner(kind, route)
    sequences = three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_sequence_may_change_layout_and_route_between_steps(kind: str) -> None:
    fast, sequences = make_runner(kind, "fast"), three_sequences()
    for number, feeds in enumerate(MIXED):
        run_step(fast, feeds, sequences, LAYOUTS[number % 2])
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_block_size_does_not_change_outputs(block_size: int, layout: Layout) -> None:
    runner = make_runner("llama", shape=ArenaShape(64, block_size, 4))
    blocks = torch.randperm(64, generator=torch.Generator().manual_seed(block_size)).tolist()
    sequences = three_sequences()
    per_sequence = 20 // block_size + 1
    for sequence in sequences:
        sequence.block_ids = [blocks.pop() for _ in range(per_sequence)]
    for feeds in MIXED:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone("llama", sequences)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prompt_may_be_fed_token_by_token(layout: Layout) -> None:
    runner, sequences = make_runner("llama"), three_sequences()
    for _ in range(11):
        feeds = {s.slot: 1 for s in sequences if s.num_computed < len(s.prompt)}
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone("llama", sequences)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ROUTES)
def test_tokens_fed_again_after_preemption_give_the_same_output(layout: Layout, route: Route) -> None:
    runner, sequences = make_runner("llama", route), three_sequences()
    for feeds in MIXED[:6]:
        run_step(runner, feeds, sequences, layout)
    sequences[1].num_computed = 0
    sequences[1].block_ids = [33, 12, 38, 25, 10, 36]
    for feeds in MIXED[6:]:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone("llama", sequences)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ROUTES)
def test_dead_rows_change_neither_their_neighbours_nor_real_cells(
    layout: Layout, route: Route, frozen: bool
) -> None:
    runner, sequences = make_runner("llama", route), three_sequences()
    run_step(runner, {0: None, 1: None}, sequences, layout)
    run_step(runner, {0: None, 1: None}, sequences, layout)
    dead = [sequences[1].dead_row(frozen)]
    arena = runner._arenas[0]
    held = [arena.shape.cell(sequences[1].block_ids, p) for p in range(sequences[1].num_computed)]
    before = [cells[:, held].clone() for cells in (*arena.keys, *arena.values)]
    for feeds in ({0: None}, {0: None, 2: 6}, {0: None, 2: None}, {0: None, 2: None}):
        run_step(runner, feeds, sequences, layout, dead)
    after = [cells[:, held] for cells in (*arena.keys, *arena.values)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert_equals_alone("llama", sequences)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_of_dead_rows_alone_changes_no_stored_key(layout: Layout, frozen: bool) -> None:
    runner, sequences = make_runner("llama"), three_sequences()
    run_step(runner, {0: None, 1: None}, sequences, layout)
    arena = runner._arenas[0]
    free = {own_cell(s.dead_row(frozen), arena.shape) for s in sequences[:2]}
    kept = [cell for cell in range(arena.shape.num_blocks * arena.shape.block_size) if cell not in free]
    before = [cells[:, kept].clone() for cells in (*arena.keys, *arena.values)]
    run_step(runner, {}, sequences, layout, [s.dead_row(frozen) for s in sequences[:2]])
    after = [cells[:, kept] for cells in (*arena.keys, *arena.values)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("num_blocks", [2, 5])
def test_a_dead_row_attends_to_its_frozen_keys(num_blocks: int) -> None:
    """What it leaves is what its last token would have left alive, its blocks full or not."""
    runner, sequences = make_runner("llama", arenas=(0, 1)), three_sequences()
    sequence = sequences[0]
    sequence.prompt = [*sequence.prompt[:4], 7, 8, 9, 10]
    sequence.block_ids = sequence.block_ids[:num_blocks]
    run_step(runner, {0: None}, sequences, "ragged")
    arena = runner._arenas[0]
    dead = sequence.dead_row()
    own = own_cell(dead, arena.shape)
    assert (own == arena.shape.dead_cell(0)) == (num_blocks == 2)
    run_step(runner, {}, sequences, "ragged", [dead])
    left = [cells[:, own].clone() for cells in (*arena.keys, *arena.values)]
    sequence.block_ids = three_sequences()[0].block_ids
    run_step(runner, {0: None}, sequences, "ragged")
    last = arena.shape.cell(sequence.block_ids, sequence.num_computed - 1)
    for dead_key, key in zip(left, (*arena.keys, *arena.values), strict=True):
        torch.testing.assert_close(dead_key, key[:, last], rtol=0, atol=1e-6)


def test_an_unfinished_piece_samples_nothing() -> None:
    runner, sequences = make_runner("llama"), three_sequences()
    for layout in LAYOUTS:
        run_step(runner, {0: 2, 2: 3}, sequences, layout)
    assert sequences[0].outputs == sequences[2].outputs == []


def test_two_arenas_do_not_touch_each_other() -> None:
    runner = make_runner("llama", arenas=(0, 5))
    sequences = three_sequences()
    for feeds in MIXED[:5]:
        run_step(runner, feeds, sequences, "ragged")
    before = [cells.clone() for cells in runner._arenas[5].keys]
    for feeds in MIXED[5:]:
        run_step(runner, feeds, sequences, "ragged")
    assert all(torch.equal(a, b) for a, b in zip(before, runner._arenas[5].keys, strict=True))


def test_one_sequence_alone_equals_generate_at_the_longest_position() -> None:
    runner = make_runner("gpt2", shape=ArenaShape(40, 4, 4))
    prompt = [i % 90 for i in range(110)]
    sequence = Sequence(0, prompt, list(range(39, 7, -1)))
    for _ in range(8):
        run_step(runner, {0: None}, [sequence], "ragged")
    assert sequence.outputs == generated("gpt2", prompt, 8)
