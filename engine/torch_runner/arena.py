"""The preallocated KV arena, and the transformers cache that writes into it.

Owns the key and value tensors of every layer. Knows nothing of requests: cells come from the step.
An arena is `[heads, cells, dim]` a layer: one head's keys are adjacent, which halves the time attention
takes to read a thousand of them (against `[cells, heads, dim]`), and a whole step, prefill and decode
together, is written by one copy a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers.cache_utils import Cache

from engine.runner import RunnerError
from engine.step.geometry import ArenaShape
from engine.step.plan import PlanRow
from engine.torch_runner.groups import key_cells

if TYPE_CHECKING:
    from engine.torch_runner.step import Step


class LayerShape(NamedTuple):
    """What one token leaves in one layer: `[num_key_heads, key_dim]` and `[num_value_heads, value_dim]`."""

    num_key_heads: int
    key_dim: int
    num_value_heads: int
    value_dim: int

    @property
    def num_values(self) -> int:
        """Numbers stored for one token."""
        return self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim


def kv_bytes_per_token(layers: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Bytes one cached token takes, all layers together."""
    return sum(layer.num_values for layer in layers) * dtype.itemsize


class KVArena:
    """Key and value cells of one engine, allocated once.

    Args:
        shape: how many cells, scratch included.
        layers: what a token leaves in each layer.
        dtype, device: of the cells.

    Raises:
        RunnerError: there is no memory for it.
    """

    def __init__(
        self,
        shape: ArenaShape,
        layers: Sequence[LayerShape],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.shape = shape
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        cells = shape.num_cells
        try:
            for layer in layers:
                keys = (layer.num_key_heads, cells, layer.key_dim)
                values = (layer.num_value_heads, cells, layer.value_dim)
                # Zeros, not empty: a cell that is read under a mask must not hold NaN, since 0 * NaN is NaN.
                self.keys.append(torch.zeros(keys, dtype=dtype, device=device))
                self.values.append(torch.zeros(values, dtype=dtype, device=device))
        except (RuntimeError, MemoryError) as error:
            size = kv_bytes_per_token(layers, dtype) * cells / 1e6
            raise RunnerError(
                f"there is no memory for a KV cache of {shape.num_blocks} blocks of {shape.block_size} "
                f"tokens ({size:.0f} MB on {device}); set num_blocks lower"
            ) from error

    def is_finite(self, row: PlanRow, *, before: bool = False) -> bool:
        """Whether a row's cells hold numbers: those it writes in its step, or those it had `before` it."""
        cells = key_cells(row, self.shape)
        own = torch.from_numpy(
            cells[: -len(row.token_ids)] if before else cells[-len(row.token_ids) :].copy()
        ).to(self.keys[0].device)
        return all(bool(torch.isfinite(layer[:, own]).all()) for layer in (*self.keys, *self.values))

    def clean(self, rows: Iterable[PlanRow]) -> None:
        """Take what is no number out of rows' cells and of the scratch cells: these are read by others,
        under a mask."""
        scratch = np.arange(self.shape.padding_cell, self.shape.num_cells)
        cells = np.concatenate([scratch, *(key_cells(row, self.shape) for row in rows)])
        index = torch.from_numpy(cells).to(self.keys[0].device)
        for layer in (*self.keys, *self.values):
            layer[:, index] = layer[:, index].nan_to_num(0.0, 0.0, 0.0)


class ArenaCache(Cache):
    """Writes a step's keys and values in place and hands the attention function the whole layer.

    `update` returns views `[1, heads, cells, dim]` of the arena; which cells a query may read is the
    business of the step's groups (`attention.py`).
    """

    def __init__(self, arena: KVArena, step: Step) -> None:
        super().__init__(layers=[])
        self.arena = arena
        self.step = step

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store `[B, heads, L, dim]` keys and values of a layer at the step's write cells."""
        self.write(key_states, value_states, layer_idx)
        return self.arena.keys[layer_idx].unsqueeze(0), self.arena.values[layer_idx].unsqueeze(0)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions are always given, so nothing may be derived from a common length."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length of the key axis and its offset, for a model that builds a mask after all."""
        return self.step.geometry.num_keys, 0

    def write(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int) -> None:
        """Store `[B, heads, L, dim]` keys and values of a layer at the step's write cells."""
        keys, values = self.arena.keys[layer_idx], self.arena.values[layer_idx]
        cells = self.step.write_cells
        for layer, states in ((keys, _flat(key_states, keys)), (values, _flat(value_states, values))):
            layer[:, cells] = states  # `index_copy_` takes four times as long from eight rows on


class GatheringCache(ArenaCache):
    """The reference route's cache: `update` returns copies of the step's keys, side by side.

    Keys are `[cached_i | new_i]` a sequence: `[1, heads, num_keys, dim]` ragged, `[B, heads, num_keys,
    dim]` padded, which is what a model's own attention expects beside a 4-D mask.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store as `ArenaCache` does, then gather."""
        self.write(key_states, value_states, layer_idx)
        keys, values = self.arena.keys[layer_idx], self.arena.values[layer_idx]
        cells = self.step.key_cells
        return keys[:, cells].transpose(0, 1), values[:, cells].transpose(0, 1)


def _flat(states: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
    """`[B, heads, L, dim]` as `[heads, B * L, dim]` in the arena's type."""
    heads, _, dim = layer.shape
    return states.transpose(0, 1).reshape(heads, -1, dim).to(layer.dtype)
