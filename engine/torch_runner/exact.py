"""Exact mode: float32 logits bitwise the same alone and in any batch, at a price in speed.

Floating-point sums depend on their order, and a kernel's order depends on the shape it is given. So in
exact mode nothing that sums over a row's numbers sees how many rows there are:

    products with the weights   in pieces of 8 rows, filled up with zeros, always; no prepacked weights
    attention                   one call a sequence, on a copy of its own keys; padding has its own
    threads                     one: several would cut element-wise work at places that depend on the batch

Claimed: a sequence's logits are the same alone, beside others, ragged and padded, **as long as its tokens
are fed in the same pieces**. Not claimed: other pieces. Chunked prefill, a prefix-cache hit and recomputation
after preemption feed a prompt in other pieces, attention then runs on other shapes, and the last bits do
differ. What is claimed is measured at load, and a model or machine that does not pass is refused.

On the default model, 8 sequences of 7 to 80 prompt tokens, 48 rows of logits, alone against all together:
48 equal ragged and 48 padded (prepacked products: 18 and 7, plain ones: 0 and 0, differences up to 8e-5);
with each prompt cut after 5 tokens 0 equal, differences up to 6e-5.

Cutting to 8 rows matters as much as filling up to 8: with two threads the kernel for 9 rows was seen to
round differently from that for 8. The idea is that of batch-invariant kernels (Thinking Machines Lab,
"Defeating Nondeterminism in LLM Inference", 2025; vLLM has a mode for it on GPUs).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from engine.runner import ModelLoadError
from engine.torch_runner.groups import Group, Groups, key_cells
from engine.torch_runner.step import Step

#: Rows of every product.
ROWS = 8

_HINT = "leave --exact out"


class ExactProduct:
    """A drop-in for one module's `forward`: the same product, eight rows at a time."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._plain: Callable[[torch.Tensor], torch.Tensor] = module.forward

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`[…, in]` to `[…, out]`."""
        rows = x.reshape(-1, x.shape[-1])
        count = rows.shape[0]
        if not count:
            return self._plain(x)
        filled = pad(rows, (0, 0, 0, -count % ROWS)).view(-1, ROWS, x.shape[-1])
        # Each piece is copied, so that it begins where memory is aligned: kernels may look at that too.
        outputs = torch.cat([self._plain(piece.clone()) for piece in filled])
        return outputs[:count].view(*x.shape[:-1], outputs.shape[-1])


class ExactStep(Step):
    """A step whose attention runs a call a sequence, ragged or padded, with keys and queries copied."""

    def groups(self, window: int | None) -> Groups:
        """A group a plan row, and one for padding, which attends to the padding cell."""
        if window not in self._groups:
            numbers = range(len(self.plan.rows))
            members = [self._own_group(number, window) for number in numbers]
            self._groups[window] = Groups(members + self._padding_group(), False)
        return self._groups[window]

    def _own_group(self, number: int, window: int | None) -> Group:
        row, span = self.plan.rows[number], self.geometry.spans[number]
        if window is not None and window >= row.kv_len:
            window = None  # judged by the row alone: its neighbours must not change its mask's form
        cached = row.kv_len - len(row.token_ids)
        first = 0 if window is None else max(0, cached + 1 - window)
        query = np.arange(cached, row.kv_len)[:, None]
        key = np.arange(first, row.kv_len)[None, :]
        causal = cached == 0 and window is None
        allowed = (key <= query) if window is None else (key <= query) & (key > query - window)
        at = span.row * self.geometry.shape[1] + span.q_start
        return Group(
            num_sequences=1,
            num_queries=span.q_len,
            num_keys=row.kv_len - first,
            queries=torch.arange(at, at + span.q_len, device=self.device),
            cells=torch.from_numpy(key_cells(row, self.arena)[first:].copy()).to(self.device),
            bias=None if causal else self._bias(allowed[None, None]),
            causal=causal,
        )

    def _padding_group(self) -> list[Group]:
        columns = self.geometry.shape[1]
        # Left padding: what stands before a row's first token, and no row of a ragged layout has any.
        padding = [] if self.plan.layout == "ragged" else self.geometry.spans
        places = [span.row * columns + column for span in padding for column in range(span.q_start)]
        if not places:
            return []
        return [
            Group(
                num_sequences=len(places),
                num_queries=1,
                num_keys=1,
                queries=torch.tensor(places, device=self.device),
                cells=torch.full((len(places),), self.arena.padding_cell, device=self.device),
            )
        ]


def check_request(device: torch.device, dtype: torch.dtype, num_threads: int | None) -> None:
    """Refuse exact mode where it is not made for.

    Raises:
        ModelLoadError: not float32 (or float64) on the CPU, or more than one thread is asked for.
    """
    if device.type != "cpu" or dtype not in (torch.float32, torch.float64):
        raise ModelLoadError("exact mode is there for float32 on the CPU only", "exact", _HINT)
    if num_threads not in (None, 1):
        raise ModelLoadError(
            f"exact mode runs on one thread, not on {num_threads}", "exact", "leave --threads out"
        )


def make_exact(model: PreTrainedModel) -> int:
    """Give every linear layer exact products, each checked: a row's place among the eight must not matter.

    Returns:
        how many there are.

    Raises:
        ModelLoadError: on this machine it does matter, or the model has products elsewhere (experts).
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim > 2:
            raise ModelLoadError(
                f"exact mode cannot be had with {type(model).__name__}: {name} is multiplied outside of "
                "linear layers, as many rows at a time as the batch brings",
                "exact",
                _HINT,
            )
    modules = [module for module in model.modules() if isinstance(module, torch.nn.Linear | Conv1D)]
    generator = torch.Generator().manual_seed(0)
    for module in modules:
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        width = weight.shape[0] if isinstance(module, Conv1D) else weight.shape[1]
        row = torch.randn(1, width, generator=generator).to(weight.dtype)
        outputs = module(row.repeat(ROWS, 1))
        if not all(torch.equal(output, outputs[0]) for output in outputs):
            raise ModelLoadError(
                f"exact mode cannot be had on this machine: a product of {width} by {outputs.shape[1]} "
                "rounds differently from row to row",
                "exact",
                _HINT,
            )
        module.forward = ExactProduct(module)  # type: ignore[method-assign]
    return len(modules)
