"""Linear weights kept in oneDNN's own layout, which makes products of few rows up to twice as fast.

torch's float32 `linear` has a slow path at 2 to 7 rows, where a decode step lives; with prepacked
weights there is none. The operators are torch's private ones (they serve its compiler), so everything
here is guarded: a product that is missing, fails or differs leaves its module as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from transformers.pytorch_utils import Conv1D

#: Types oneDNN packs, and how far a packed product may be off, relative to the largest output.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}

#: Packed weights are copies; beyond this share of the machine's memory they are not made.
_MEMORY_SHARE = 0.25


class PackedLinear:
    """A drop-in for one module's `forward`. The module keeps its weight for whoever looks at it."""

    def __init__(self, module: torch.nn.Module, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._plain: Callable[[torch.Tensor], torch.Tensor] = module.forward
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:  # no place is sampled in this step
            return self._plain(x)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return product


def prepack_linears(model: torch.nn.Module) -> int:
    """Give the linear layers of a CPU model packed weights, each checked against the plain product.

    Returns:
        how many layers have them now.
    """
    if not torch.backends.mkldnn.is_available():
        return 0
    linears = [m for m in model.modules() if type(m) in (torch.nn.Linear, Conv1D)]
    if _num_bytes(linears) > _MEMORY_SHARE * _physical_memory():
        return 0
    return sum(_prepack(module) for module in linears)


def _prepack(module: torch.nn.Module) -> bool:
    weight, bias = _weight(module).detach(), module.bias
    if weight.dtype not in _TOLERANCE or weight.device.type != "cpu":
        return False
    if "forward" in module.__dict__:  # packed already, or wrapped by someone else
        return False
    if isinstance(module, Conv1D):  # GPT-2 keeps its weights [in, out]
        weight = weight.t()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, weight.shape[1], generator=generator).to(weight.dtype)
    try:
        packed = PackedLinear(module, weight, bias.detach() if isinstance(bias, torch.Tensor) else None)
        got, expected = packed(x), module.forward(x)
    except (RuntimeError, AttributeError, TypeError):  # another torch, another signature
        return False
    off = (got - expected).abs().max()
    if got.shape != expected.shape or not off <= _TOLERANCE[weight.dtype] * expected.abs().max():
        return False
    module.forward = packed
    return True


def _num_bytes(modules: list[torch.nn.Module]) -> int:
    return sum(_weight(module).numel() * _weight(module).itemsize for module in modules)


def _weight(module: torch.nn.Module) -> torch.Tensor:
    assert isinstance(module.weight, torch.Tensor)
    return module.weight


def _physical_memory() -> float:
    """Bytes of memory in this machine; unlimited where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
