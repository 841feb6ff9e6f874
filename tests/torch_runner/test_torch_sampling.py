"""Choosing tokens: greedy, seeded, independent of neighbours."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from engine.request import SamplingParams
from engine.step.plan import Layout, PlanRow
from engine.torch_runner import sampling
from engine.torch_runner.sampling import keep_top_k, keep_top_p, sample, uniform
from tests.torch_runner.sequences import MIXED, make_runner, run_step, three_sequences


def _row(
    temperature: float = 0.0, seed: int = 0, output_index: int = 0, n_top: int = 0, **cuts: Any
) -> PlanRow:
    return PlanRow(
        request_id="r0",
        slot=0,
        kind="decode",
        token_ids=[1],
        start_position=3,
        kv_len=4,
        block_ids=[0],
        sampling=SamplingParams(temperature=temperature, seed=seed, **cuts),
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
def test_logits_that_are_no_numbers_choose_nothing_and_spoil_no_other(bad: float, temperature: float) -> None:
    logits = torch.zeros(2, 5)
    logits[1, 2] = bad
    whole, spoilt = sample(logits, [_row(), _row(temperature)])
    assert spoilt is None
    assert [whole] == sample(logits[:1], [_row()])


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


def _logits(rows: int = 6, vocab: int = 300) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 2, 17, 299, 300, 1000])
def test_top_k_keeps_what_transformers_keeps(k: int) -> None:
    expected = TopKLogitsWarper(k)(None, _logits())
    assert torch.equal(keep_top_k(_logits(), [k] * 6), expected)


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("some", [4, 1024], ids=["sorting all", "the likeliest do"])
def test_top_p_keeps_what_transformers_keeps(p: float, some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_LIKELY", some)
    expected = TopPLogitsWarper(p)(None, _logits())
    assert torch.equal(keep_top_p(_logits(), torch.full((6,), p, dtype=torch.float64)), expected)


def test_each_row_is_cut_by_its_own_settings() -> None:
    logits = _logits(4)
    cut = keep_top_k(logits, [0, 3, 0, 1])
    assert torch.isfinite(cut).sum(-1).tolist() == [300, 3, 300, 1]
    cut = keep_top_p(logits, torch.tensor([1.0, 0.5, 1e-9, 1.0], dtype=torch.float64))
    kept = torch.isfinite(cut).sum(-1).tolist()
    assert (kept[0], kept[2], kept[3]) == (300, 1, 300) and 1 < kept[1] < 300


def test_tokens_as_likely_as_the_last_one_kept_stay() -> None:
    level = torch.tensor([[1.0, 0.0, 0.0, -5.0]], dtype=torch.float64)
    assert torch.isfinite(keep_top_k(level, [2])).tolist() == [[True, True, True, False]]
    half = torch.tensor([0.6], dtype=torch.float64)
    assert torch.isfinite(keep_top_p(level, half)).tolist() == [[True, True, True, False]]


def test_temperature_comes_first_then_top_k_then_top_p() -> None:
    logits = _logits(1)
    kept = TemperatureLogitsWarper(2.0)(None, logits)
    kept = TopPLogitsWarper(0.7)(None, TopKLogitsWarper(20)(None, kept))
    count = 3000
    rows = [_row(2.0, seed=3, output_index=i, top_k=20, top_p=0.7) for i in range(count)]
    drawn = torch.tensor([t.token_id for t in sample(logits.repeat(count, 1), rows)])
    expected = torch.softmax(kept[0], dim=-1)
    assert set(drawn.tolist()) == set(torch.nonzero(expected).flatten().tolist())
    assert float((torch.bincount(drawn, minlength=300) / count - expected).abs().max()) < 0.03


def test_the_logprob_is_of_the_whole_distribution() -> None:
    logits = _logits(1)
    (token,) = sample(logits, [_row(3.0, seed=2, top_k=2, top_p=0.9, n_top=3)])
    table = torch.log_softmax(logits[0], dim=-1)
    assert token.logprob == pytest.approx(float(table[token.token_id]))
    assert [logprob for _, logprob in token.top] == pytest.approx(table.topk(3).values.tolist())


def test_greedy_ignores_top_k_and_top_p() -> None:
    logits = _logits(1)
    (token,) = sample(logits, [_row(0.0, top_k=5, top_p=0.1)])
    assert token.token_id == int(logits.argmax())


def test_top_k_of_one_is_greedy_at_any_temperature() -> None:
    logits = _logits()
    rows = [_row(9.0, seed=s, top_k=1) for s in range(6)]
    assert [t.token_id for t in sample(logits, rows)] == logits.argmax(-1).tolist()


#: What each slot's request asks for: every way of drawing beside every other.
CUTS: list[dict[str, Any]] = [{"temperature": 0.8, "top_k": 12}, {"temperature": 1.5, "top_p": 0.8}, {}]


@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("cuts", [[{"temperature": 0.8}] * 3, CUTS], ids=["temperature", "mixed"])
def test_a_sampled_sequence_does_not_depend_on_its_neighbours(
    layout: Layout, cuts: list[dict[str, Any]]
) -> None:
    runner = make_runner("gpt2")
    together = three_sequences()
    for sequence, cut in zip(together, cuts, strict=True):
        sequence.sampling = SamplingParams(seed=11 + sequence.slot, **cut)
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
