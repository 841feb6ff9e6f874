"""Packed weights change the speed of a product and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from engine.torch_runner import prepack
from engine.torch_runner.load import LoadOptions, adopt_model
from engine.torch_runner.prepack import PackedLinear, PackedProduct, prepack_linears
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


needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


def _products(model: torch.nn.Module) -> dict[PackedProduct, list[str]]:
    """Each packed product and the modules it serves."""
    products: dict[PackedProduct, list[str]] = {}
    for name, module in model.named_modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, PackedLinear):
            products.setdefault(forward.packed, []).append(name.rpartition(".")[2])
    return products


@needs_onednn
def test_modules_that_share_an_input_share_a_product() -> None:
    with torch.inference_mode():
        model = build("llama").float()
        prepack_linears(model)
    layer = [["q_proj", "k_proj", "v_proj"], ["o_proj"], ["gate_proj", "up_proj"], ["down_proj"]]
    assert sorted(_products(model).values()) == sorted([*layer, *layer, ["lm_head"]])


class _Twins(torch.nn.Module):
    """Two linear layers on one input, or on two."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 5, bias=bias), torch.nn.Linear(8, 3, bias=bias)
        self.apart = False

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> torch.Tensor:
        x = torch.sin(torch.arange(8.0) * input_ids.unsqueeze(-1))
        return torch.cat([self.a(x), self.b(x * 2 if self.apart else x)], dim=-1)


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_a_shared_product_is_right_for_inputs_that_are_not_shared_too(apart: bool, bias: bool) -> None:
    twins = _Twins(bias)
    with torch.inference_mode():
        prepack_linears(twins)
        assert list(_products(twins).values()) == [["a", "b"]]
        got = [twins(torch.tensor([ids])) for ids in ([1], [1, 2], [3, 1, 4, 1, 5])]
        twins.apart = apart
        other = twins(torch.tensor([[6, 7]]))
        for module in (twins.a, twins.b):
            del module.forward
        torch.testing.assert_close(other, twins(torch.tensor([[6, 7]])))
        twins.apart = False
        expected = [twins(torch.tensor([ids])) for ids in ([1], [1, 2], [3, 1, 4, 1, 5])]
    torch.testing.assert_close(got, expected)


@needs_onednn
def test_few_rows_are_filled_up_only_where_they_are_all() -> None:
    linear = torch.nn.Linear(8, 5)
    inputs = [torch.randn(shape) for shape in ((8,), (1, 8), (1, 2, 8), (3, 1, 8), (2, 3, 8), (1, 7, 8))]
    expected = [linear(x) for x in inputs]
    with torch.inference_mode():
        assert prepack_linears(linear) == 1
        torch.testing.assert_close([linear(x) for x in inputs], expected)


@needs_onednn
def test_a_wrong_shared_product_leaves_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PackedProduct.product
    monkeypatch.setattr(PackedProduct, "product", lambda self, x: right(self, x) + (len(self._widths) > 1))
    twins = _Twins()
    with torch.inference_mode():
        assert prepack_linears(twins) == 2
    assert list(_products(twins).values()) == [["a"], ["b"]]


def test_no_rows_give_no_rows() -> None:
    linear = torch.nn.Linear(8, 5)
    with torch.inference_mode():
        prepack_linears(linear)
        assert linear(torch.zeros(1, 0, 8)).shape == (1, 0, 5)


def test_float64_is_left_alone() -> None:
    assert prepack_linears(build("llama")) == 0


def test_a_wrong_product_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedProduct, "product", lambda self, x: torch.ones(*x.shape[:-1], 5))
    linear = torch.nn.Linear(8, 5)
    assert prepack_linears(linear) == 0
    assert "forward" not in linear.__dict__


def test_a_missing_operator_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: PackedProduct, *args: Any) -> None:
        raise AttributeError("no such operator")

    monkeypatch.setattr(PackedProduct, "__init__", missing)
    assert prepack_linears(torch.nn.Linear(8, 5)) == 0


def test_a_model_too_large_for_a_second_copy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepack, "_physical_memory", lambda: 100.0)
    assert prepack_linears(torch.nn.Linear(8, 5)) == 0


def test_loading_packs_unless_told_otherwise() -> None:
    for wanted in (True, False):
        model = build("llama").float()
        adopt_model(model, None, LoadOptions(prepack=wanted, num_threads=1), lambda _: None)
        assert (_packed(model) > 0) == (wanted and torch.backends.mkldnn.is_available())
