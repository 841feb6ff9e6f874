"""Choosing tokens: greedy, seeded, independent of neighbours."""

from __future__ import annotations

import math

import pytest
import torch

from engine.request import SamplingParams
from engine.runner import ForwardError
from engine.step.plan import Layout, PlanRow
from engine.torch_runner.sampling import sample, uniform
from tests.torch_runner.sequences import MIXED, make_runner, run_step, three_sequences


def _row(temperature: float = 0.0, seed: int = 0, output_index: int = 0, n_top: int = 0) -> PlanRow:
    return PlanRow(
        request_id="r0",
        slot=0,
        kind="decode",
        token_ids=[1],
        start_position=3,
        kv_len=4,
        block_ids=[0],
        sampling=SamplingParams(temperature=temperature, seed=seed),
        output_index=output_index,
        n_top=n_top,
    )


def test_greedy_takes_the_largest_logit() -> None:
    (token,) = sample(torch.tensor([[0.0, 3.0, 1.0]]), [_row()])
    assert token.token_id == 1
    assert token.top == []


def test_logprob_is_natural_and_untempered() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64)
    (token,) = sample(logits, [_row(temperature=5.0, seed=3)])
    assert token.logprob == pytest.approx(math.log((0.25, 0.75)[token.token_id]))


def test_top_is_best_first_and_as_long_as_each_row_asks() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)).repeat(3, 1)
    none, two, many = sample(logits, [_row(), _row(n_top=2), _row(n_top=9)])
    assert none.top == []
    assert [token for token, _ in two.top] == [1, 2]
    assert [logprob for _, logprob in two.top] == pytest.approx([math.log(0.6), math.log(0.3)])
    assert [token for token, _ in many.top] == [1, 2, 0]


def test_nothing_to_sample_gives_nothing() -> None:
    assert sample(torch.zeros(0, 7), []) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_an_error(bad: float, temperature: float) -> None:
    logits = torch.zeros(2, 5)
    logits[1, 2] = bad
    with pytest.raises(ForwardError, match="NaN"):
        sample(logits, [_row(), _row(temperature)])


def test_a_draw_depends_on_seed_and_output_index_alone() -> None:
    assert uniform(7, 3) == uniform(7, 3)
    assert len({uniform(seed, index) for seed in range(20) for index in range(20)}) == 400
    assert all(0.0 <= uniform(seed, 0) < 1.0 for seed in (-(2**70), -1, 0, 2**64))


def test_drawing_does_not_touch_torch_s_own_generator() -> None:
    before = torch.get_rng_state()
    sample(torch.zeros(1, 9), [_row(temperature=1.0)])
    assert torch.equal(before, torch.get_rng_state())


def test_draws_follow_the_tempered_distribution() -> None:
    probabilities = torch.tensor([0.05, 0.15, 0.3, 0.5], dtype=torch.float64)
    count, temperature = 4000, 2.0
    rows = [_row(temperature, seed=9, output_index=i) for i in range(count)]
    tokens = sample(torch.log(probabilities).repeat(count, 1), rows)
    seen = torch.bincount(torch.tensor([t.token_id for t in tokens]), minlength=4) / count
    expected = probabilities.sqrt() / probabilities.sqrt().sum()
    assert float((seen - expected).abs().max()) < 0.03


def test_a_tiny_temperature_is_greedy() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.999]])
    assert {sample(logits, [_row(1e-30, seed=s)])[0].token_id for s in range(20)} == {1}


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]]).repeat(500, 1)
    tokens = sample(logits, [_row(1.0, seed=s) for s in range(500)])
    assert {t.token_id for t in tokens} == {0, 1}


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_a_sampled_sequence_does_not_depend_on_its_neighbours(layout: Layout) -> None:
    runner = make_runner("gpt2")
    together = three_sequences()
    for sequence in together:
        sequence.sampling = SamplingParams(temperature=0.8, seed=11 + sequence.slot)
    for feeds in MIXED:
        run_step(runner, feeds, together, layout)
    for sequence in together:
        (solo,) = [s for s in three_sequences() if s.slot == sequence.slot]
        solo.sampling = sequence.sampling
        while len(solo.outputs) < len(sequence.outputs):
            run_step(runner, {solo.slot: None}, [solo] * 3, "ragged")
        assert solo.outputs == sequence.outputs
    greedy = three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, greedy, layout)
    assert [s.outputs for s in greedy] != [s.outputs for s in together], "temperature had no effect"
