"""The largest logits in two stages: what torch finds in one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.torch_runner.largest import BLOCK, argmax, top_k

VOCABULARIES = (1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 3, 49_152)


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_top_k_is_that_of_torch(vocab: int, k: int) -> None:
    logits = torch.stack([torch.randperm(vocab), torch.arange(vocab), torch.arange(vocab).flip(0)]).double()
    k = min(k, vocab)
    values, places = top_k(logits, k)
    expected = logits.topk(k, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


@given(st.integers(1, 4 * BLOCK), st.lists(st.integers(0, 4 * BLOCK - 1), min_size=1, max_size=4))
def test_of_equals_argmax_is_the_first(vocab: int, places: list[int]) -> None:
    logits = torch.zeros(1, vocab)
    equals = sorted({place % vocab for place in places})
    logits[0, equals] = 1.0
    assert argmax(logits).tolist() == [equals[0]]


@pytest.mark.parametrize("place", [0, BLOCK, 3 * BLOCK + 5])
def test_a_nan_is_found_as_torch_finds_it(place: int) -> None:
    logits = torch.randn(2, 3 * BLOCK + 7)
    logits[1, place] = float("nan")
    assert argmax(logits)[1] == place
    assert top_k(logits, 3)[1][1, 0] == place
