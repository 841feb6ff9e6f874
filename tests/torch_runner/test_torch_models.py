"""Many types of model: mixed steps give what each one's own `generate` gives a sequence alone."""

from __future__ import annotations

import pytest

from engine.step.plan import Layout
from tests.torch_runner.sequences import MIXED, assert_equals_alone, make_runner, run_step, three_sequences
from tests.torch_runner.zoo import KINDS

#: Those that `test_torch_routes` runs, on both routes, are not run again.
OTHERS = [kind for kind in KINDS if kind not in ("gpt2", "llama", "mistral", "gemma2", "gpt_oss")]


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_mixed_steps_give_what_generate_gives_alone(kind: str, layout: Layout) -> None:
    runner = make_runner(kind)
    sequences = three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_sequence_recomputed_and_cut_anew_goes_on_as_before(kind: str) -> None:
    runner, sequences = make_runner(kind), three_sequences()
    for feeds in MIXED[:6]:
        run_step(runner, feeds, sequences, "ragged")
    sequences[2].num_computed = 0  # preempted: prompt and outputs are fed again, in two pieces
    sequences[2].block_ids = [33, 12, 38, 25, 10, 36]
    for feeds in ({0: None, 2: 7}, {1: None, 2: None}, *MIXED[8:]):
        run_step(runner, feeds, sequences, "ragged")
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", ["qwen3", "olmo2", "qwen3_moe"])
def test_the_reference_route_does_too(kind: str) -> None:
    runner, sequences = make_runner(kind, "reference"), three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, "padded")
    assert_equals_alone(kind, sequences)
