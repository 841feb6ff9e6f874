"""A fused norm gives what the module gave, or the module is left as it was."""

from __future__ import annotations

import pytest
import torch

from engine.torch_runner import LoadOptions
from engine.torch_runner.load import adopt_model
from engine.torch_runner.norms import FusedNorm, fuse_norms
from tests.torch_runner.sequences import build


def _fused(model: torch.nn.Module) -> int:
    return sum(isinstance(module.__dict__.get("forward"), FusedNorm) for module in model.modules())


@pytest.mark.parametrize(("kind", "count"), [("llama", 5), ("mistral", 5), ("gemma2", 9), ("gpt2", 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_norms_equal_plain_ones(kind: str, count: int, dtype: torch.dtype) -> None:
    plain, fused = build(kind).to(dtype), build(kind).to(dtype)
    with torch.inference_mode():
        for model in (plain, fused):
            for name, weight in model.named_parameters():
                if "norm" in name and weight.ndim == 1:
                    weight.copy_(torch.linspace(0.5, 1.5, len(weight)))
        assert fuse_norms(fused) == _fused(fused) == count
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        a, b = plain(ids).logits.float(), fused(ids).logits.float()
    assert float((a - b).norm() / a.norm()) < (1e-5 if dtype == torch.float32 else 0.05)


class OddRMSNorm(torch.nn.Module):
    """Called so, but another function."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().mean(-1, keepdim=True)


class GatedRMSNorm(OddRMSNorm):
    """Takes another tensor."""

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return x * gate


class BareRMSNorm(torch.nn.Module):
    """Has no weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("module", [OddRMSNorm(), GatedRMSNorm(), BareRMSNorm()])
def test_what_is_no_plain_rms_norm_is_left_alone(module: torch.nn.Module) -> None:
    with torch.inference_mode():
        assert fuse_norms(module) == 0
    assert "forward" not in module.__dict__


def test_float64_is_left_alone() -> None:
    """transformers' own modules go through float32 there."""
    assert fuse_norms(build("llama")) == 0


def test_loading_fuses_with_prepacking_only() -> None:
    for wanted in (True, False):
        model = build("llama").float()
        adopt_model(model, None, LoadOptions(prepack=wanted, num_threads=1), lambda _: None)
        assert (_fused(model) > 0) == wanted
