"""Packed weights change the speed of a product and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from engine.torch_runner import prepack
from engine.torch_runner.load import LoadOptions, adopt_model
from engine.torch_runner.prepack import PackedLinear, prepack_linears
from tests.torch_runner.sequences import build


def _packed(model: PreTrainedModel) -> int:
    return sum(isinstance(module.__dict__.get("forward"), PackedLinear) for module in model.modules())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_products_equal_plain_ones(kind: str, dtype: torch.dtype) -> None:
    plain, packed = build(kind).to(dtype), build(kind).to(dtype)
    with torch.inference_mode():
        count = prepack_linears(packed)
        assert count == _packed(packed)
        if torch.backends.mkldnn.is_available() and dtype == torch.float32:
            assert count > 0
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        a, b = plain(ids).logits.float(), packed(ids).logits.float()
    assert float((a - b).norm() / a.norm()) < (1e-5 if dtype == torch.float32 else 0.05)


def test_no_rows_give_no_rows() -> None:
    linear = torch.nn.Linear(8, 5)
    with torch.inference_mode():
        prepack_linears(linear)
        assert linear(torch.zeros(1, 0, 8)).shape == (1, 0, 5)


def test_float64_is_left_alone() -> None:
    assert prepack_linears(build("llama")) == 0


def test_a_wrong_product_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedLinear, "__call__", lambda self, x: self._plain(x) + 1.0)
    linear = torch.nn.Linear(8, 5)
    assert prepack_linears(linear) == 0
    assert "forward" not in linear.__dict__


def test_a_missing_operator_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: PackedLinear, *args: Any) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(PackedLinear, "__init__", missing)
    assert prepack_linears(torch.nn.Linear(8, 5)) == 0


def test_a_model_too_large_for_a_second_copy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepack, "_physical_memory", lambda: 100.0)
    assert prepack_linears(torch.nn.Linear(8, 5)) == 0


def test_loading_packs_unless_told_otherwise() -> None:
    for wanted in (True, False):
        model = build("llama").float()
        adopt_model(model, None, LoadOptions(prepack=wanted, num_threads=1), lambda _: None)
        assert (_packed(model) > 0) == (wanted and torch.backends.mkldnn.is_available())
