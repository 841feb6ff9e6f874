"""RMSNorm in fewer operations than transformers' modules spell it out in.

At a few rows each of those costs more in being called than in computing. On a CPU torch's own `rms_norm` is
the same six operations behind one name; in float32 they are five here, three of them on one number a row.
Which modules are RMSNorms is guessed from their name and shape, and believed only where the result is theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import rms_norm

#: How far a fused norm may be off, relative to the largest output. In bfloat16 it rounds once, not twice.
_TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}

#: Under which names modules keep the small number under the root.
_EPSILONS = ("variance_epsilon", "eps", "epsilon")


class FusedNorm:
    """A drop-in for one module's `forward`. It keeps the module's own weight, unless that is shifted."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon
        self._as_tensor = torch.full((1,), epsilon, device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            return rms_norm(x, self._weight.shape, self._weight, self._epsilon)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self._as_tensor, norm, norm, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(self._weight)


def fuse_norms(model: torch.nn.Module) -> int:
    """Give the RMSNorms of a CPU model the fused operator, each checked against what it computed before.

    Returns:
        how many have it now.
    """
    return sum(_fuse(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm"))


def _fuse(module: torch.nn.Module) -> bool:
    parameters = dict(module.named_parameters(recurse=False))
    weight = parameters.get("weight")
    epsilon = next((getattr(module, name) for name in _EPSILONS if hasattr(module, name)), None)
    if weight is None or len(parameters) > 1 or weight.ndim != 1 or not isinstance(epsilon, float):
        return False
    if weight.dtype not in _TOLERANCE or weight.device.type != "cpu" or "forward" in module.__dict__:
        return False
    # Gemma keeps its weights less one.
    for candidate in (weight.detach(), weight.detach() + 1):
        fused = FusedNorm(candidate, epsilon)
        if _agree(fused, module.forward, weight):
            module.forward = fused
            return True
    return False


def _agree(fused: FusedNorm, plain: Callable[..., torch.Tensor], weight: torch.Tensor) -> bool:
    """On numbers so small that epsilon matters, usual and large ones."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, weight.shape[0], generator=generator)
    try:
        for scale in (1e-3, 1.0, 100.0):
            got, expected = (run((scale * x).to(weight.dtype)) for run in (fused, plain))
            if got.shape != expected.shape or got.dtype != expected.dtype:
                return False
            off = (got - expected).abs().max()
            if not off <= _TOLERANCE[weight.dtype] * expected.abs().max():
                return False
    except (RuntimeError, TypeError, AttributeError):  # a norm that wants more than one tensor
        return False
    return True
