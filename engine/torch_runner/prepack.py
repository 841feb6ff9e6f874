"""Linear weights kept in oneDNN's own layout, which makes products of few rows up to twice as fast.

torch's float32 `linear` has a slow path at 2 to 7 rows, where a decode step lives; with prepacked
weights there is none. Modules that are given the same tensor (q, k and v; gate and up) become one
product: fewer and larger ones read memory faster. Which they are is found by running the model once,
not by their names.

The operators are torch's private ones (they serve its compiler), so everything here is guarded: a
product that is missing, fails or differs leaves its modules as they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers.pytorch_utils import Conv1D

#: Types oneDNN packs, and how far a packed product may be off, relative to the largest output.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}

#: Packed weights are copies; beyond this share of the machine's memory they are not made.
_MEMORY_SHARE = 0.25

#: oneDNN's kernels for one and two rows read memory more slowly than the one for this many, by a
#: fifth to a third (AVX-512, float32): fewer rows are filled up with zeros.
_FEWEST_ROWS = 3

_KINDS = (torch.nn.Linear, Conv1D)


class PackedProduct:
    """One packed weight for all modules that share an input.

    The first of them that is called with a tensor computes for all; the others, called with the very
    same tensor, take their parts. The modules keep their weights for whoever looks at them.
    """

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        weights = [_weight(module).detach() for module in modules]
        biases = [module.bias.detach() for module in modules if isinstance(module.bias, torch.Tensor)]
        self._plain: list[Callable[[torch.Tensor], torch.Tensor]] = [module.forward for module in modules]
        self._widths = [weight.shape[0] for weight in weights]
        self._bias = torch.cat(biases) if biases else None
        self._packed = torch.ops.mkldnn._reorder_linear_weight(torch.cat(weights).contiguous(), None)
        self._input: torch.Tensor | None = None
        self._parts: Sequence[torch.Tensor] = ()

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of all modules side by side: `[…, rows, sum of widths]`."""
        rows = x.shape[-2] if x.ndim > 1 else _FEWEST_ROWS
        # Only where these are all the rows there are: a batch would be filled up more than once.
        few = rows < _FEWEST_ROWS and x.numel() == rows * x.shape[-1]
        wide = pad(x, (0, 0, 0, _FEWEST_ROWS - rows)) if few else x
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            wide, self._packed, self._bias, "none", [], ""
        )
        return outputs[..., :rows, :] if few else outputs

    def part(self, place: int, x: torch.Tensor) -> torch.Tensor:
        """What module number `place` gives for `x`."""
        if x.numel() == 0:  # no place is sampled in this step
            return self._plain[place](x)
        if len(self._widths) == 1:
            return self.product(x)
        if place == 0:
            self._input, self._parts = x, self.product(x).split(self._widths, dim=-1)
        elif x is not self._input:
            return self._plain[place](x)
        part = self._parts[place]
        if place == len(self._widths) - 1:
            self._input, self._parts = None, ()
        return part


class PackedLinear:
    """A drop-in for the `forward` of one module: its part of a packed product."""

    def __init__(self, packed: PackedProduct, place: int) -> None:
        self.packed = packed
        self._place = place

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.packed.part(self._place, x)


def prepack_linears(model: torch.nn.Module, token_ids: Sequence[int] = (0, 1, 2)) -> int:
    """Give the linear layers of a CPU model packed weights, each checked against the plain product.

    Args:
        token_ids: what to run the model on to see which of them share an input.

    Returns:
        how many layers have them now.
    """
    if not torch.backends.mkldnn.is_available():
        return 0
    linears = [module for module in model.modules() if _can_pack(module)]
    if _num_bytes(linears) > _MEMORY_SHARE * _physical_memory():
        return 0
    count = 0
    for modules in _sharing_an_input(model, linears, token_ids):
        if len(modules) > 1 and _pack(modules):
            count += len(modules)
    return count + sum(_pack([module]) for module in linears if not _is_wrapped(module))


def _sharing_an_input(
    model: torch.nn.Module, linears: Sequence[torch.nn.Module], token_ids: Sequence[int]
) -> list[list[torch.nn.Module]]:
    """Modules given the very same tensor in one run, in the order they are called; [] where none can be run.

    A module that is called twice belongs to no group: its input is not always that of the others.
    """
    called: list[tuple[torch.nn.Module, torch.Tensor]] = []

    def note(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        called.append((module, args[0]))  # keeping the tensor keeps its id from being given anew

    hooks = [module.register_forward_pre_hook(note) for module in linears]
    try:
        model(input_ids=torch.tensor([list(token_ids)]), use_cache=False)
    except Exception:  # whatever a model's code does, its linears can be packed one by one
        return []
    finally:
        for hook in hooks:
            hook.remove()
    groups: dict[tuple[int, bool, torch.dtype], list[torch.nn.Module]] = {}
    times: dict[torch.nn.Module, int] = {}
    for module, x in called:
        times[module] = times.get(module, 0) + 1
        has_bias = isinstance(module.bias, torch.Tensor)
        groups.setdefault((id(x), has_bias, _weight(module).dtype), []).append(module)
    return [[module for module in group if times[module] == 1] for group in groups.values()]


def _pack(modules: Sequence[torch.nn.Module]) -> bool:
    """Replace the modules' `forward` if one packed product gives what they give."""
    dtype = _weight(modules[0]).dtype
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3, _weight(modules[0]).shape[1], generator=generator).to(dtype)
    try:
        packed = PackedProduct(modules)
        drop_ins = [PackedLinear(packed, place) for place in range(len(modules))]
        close = all(
            _is_close(drop_in(x), module.forward(x))
            for drop_in, module in zip(drop_ins, modules, strict=True)
        )
    except (RuntimeError, AttributeError, TypeError):  # another torch, another signature
        return False
    if close:
        for drop_in, module in zip(drop_ins, modules, strict=True):
            module.forward = drop_in
    return close


def _is_close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if got.shape != expected.shape:
        return False
    off = (got - expected).abs().max()
    return bool(off <= _TOLERANCE[expected.dtype] * expected.abs().max())


def _can_pack(module: torch.nn.Module) -> bool:
    if type(module) not in _KINDS or _is_wrapped(module):
        return False
    weight = _weight(module)
    return weight.dtype in _TOLERANCE and weight.device.type == "cpu"


def _is_wrapped(module: torch.nn.Module) -> bool:
    """Packed already, or wrapped by someone else."""
    return "forward" in module.__dict__


def _num_bytes(modules: Sequence[torch.nn.Module]) -> int:
    return sum(_weight(module).numel() * _weight(module).itemsize for module in modules)


def _weight(module: torch.nn.Module) -> torch.Tensor:
    """`[out, in]`."""
    assert isinstance(module.weight, torch.Tensor)
    return module.weight.t() if isinstance(module, Conv1D) else module.weight  # GPT-2 keeps [in, out]


def _physical_memory() -> float:
    """Bytes of memory in this machine; unlimited where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
