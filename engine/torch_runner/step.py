"""A plan as tensors: model inputs, write cells, and the groups its attention works on.

Everything that depends on the step alone is built here once, with numpy, and not once a layer.
Geometry comes from `engine.step.geometry`, what a group is from `groups.py`; this module adds no rule
of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from engine.step.geometry import ArenaShape, Geometry, lay_out, read_cells
from engine.step.plan import Plan, PlanRow
from engine.torch_runner.groups import (
    Group,
    Groups,
    IntArray,
    Keys,
    key_cells,
    keys_of,
    ordered,
    share_calls,
    strided,
)

BoolArray = npt.NDArray[np.bool_]


class Step:
    """The tensors of one plan.

    Args:
        plan: what to run.
        arena: the cells it runs on.
        device, dtype: of the tensors, and of the masks.

    Raises:
        ValueError: the plan has no rows, or a block table that cannot hold its keys.
    """

    def __init__(self, plan: Plan, arena: ArenaShape, device: torch.device, dtype: torch.dtype) -> None:
        self.plan = plan
        self.arena = arena
        self.device = device
        self.dtype = dtype
        for row in plan.rows:
            _check_blocks(row, arena)
        self.geometry: Geometry = lay_out(plan, arena)
        shape = self.geometry.shape
        self.input_ids = self._tensor(self.geometry.input_ids).view(shape)
        self.position_ids = self._tensor(self.geometry.position_ids).view(shape)
        #: Arena cells `[rows * columns]` the step's keys go to; a slice where they are adjacent.
        self.write_cells: slice | torch.Tensor = self._index(np.array(self.geometry.write_index))
        self.logits_indices = self._tensor(self.geometry.logits_indices)
        self._groups: dict[int | None, Groups] = {}
        #: Sliding windows the attention calls asked for, by layer: what the load-time probe looks at.
        self.windows_seen: dict[int, int | None] = {}
        #: Called instead of `attention.attend` while a step is recorded (`replay.py`).
        self.attend: Callable[..., torch.Tensor] | None = None

    @cached_property
    def key_cells(self) -> torch.Tensor:
        """Cells of the key axis for the reference route: `[1, num_keys]` ragged, `[B, num_keys]` padded.

        Built from `geometry.read_cells`, cell by cell: slow and independent of the groups.
        """
        per_row = [read_cells(row, self.arena) for row in self.plan.rows]
        if self.plan.layout == "ragged":
            return self._tensor([cell for cells in per_row for cell in cells]).unsqueeze(0)
        num_keys = self.geometry.num_keys
        padding = [self.arena.padding_cell]
        return self._tensor([padding * (num_keys - len(cells)) + cells for cells in per_row])

    @cached_property
    def logits_to_keep(self) -> torch.Tensor:
        """The sampled places as transformers takes them: indices for one row, a boolean mask for several."""
        rows, columns = self.geometry.shape
        if rows == 1:
            return self.logits_indices
        mask = torch.zeros(rows * columns, dtype=torch.bool, device=self.device)
        mask[self.logits_indices] = True
        return mask.view(rows, columns)

    def groups(self, window: int | None) -> Groups:
        """The step's groups for layers that see the last `window` keys only; None: all keys."""
        if window is not None and window >= max(row.kv_len for row in self.plan.rows):
            window = None
        if window not in self._groups:
            if self.plan.layout == "ragged":
                groups = self._ragged_groups(window)
            elif self.geometry.shape[1] == 1:
                groups = self._single_token_groups(list(range(len(self.plan.rows))), window)
            else:
                groups = [self._rectangle(window)]
            self._groups[window] = ordered(groups, len(self.geometry.input_ids))
        return self._groups[window]

    def _ragged_groups(self, window: int | None) -> list[Group]:
        lengths = [span.q_len for span in self.geometry.spans]
        groups = self._single_token_groups([i for i, n in enumerate(lengths) if n == 1], window)
        return groups + [self._prefill_group(i, window) for i, n in enumerate(lengths) if n > 1]

    def _single_token_groups(self, numbers: list[int], window: int | None) -> list[Group]:
        """Groups of plan rows that feed one token each; a padded layout gives all of them as many keys."""
        keys = [keys_of(self.plan.rows[i], self.arena, window) for i in numbers]
        common = None
        if self.plan.layout == "padded":
            common = max(row.length for row in keys)
        calls = share_calls(keys, self.arena.num_cells, common)
        columns = self.geometry.shape[1]
        spans = self.geometry.spans
        groups = []
        for call in calls:
            places = [spans[numbers[i]].row * columns + spans[numbers[i]].q_start for i in call]
            groups.append(self._single_token_group(places, [keys[i] for i in call], common))
        return groups

    def _single_token_group(self, places: list[int], keys: list[Keys], common: int | None) -> Group:
        counts = np.array([row.length for row in keys])
        num_keys = common or int(counts.max())
        allowed = np.arange(num_keys) < counts[:, None]
        return Group(
            num_sequences=len(keys),
            num_queries=1,
            num_keys=num_keys,
            queries=self._index(np.array(places)),
            cells=strided(keys, num_keys, self.arena.num_cells) or self._gathered(keys, num_keys),
            bias=self._bias(allowed[:, None, None, :]),
        )

    def _gathered(self, keys: list[Keys], num_keys: int) -> torch.Tensor:
        table = np.full((len(keys), num_keys), self.arena.padding_cell)
        for line, (row, _, count) in zip(table, keys, strict=True):
            line[:count] = key_cells(row, self.arena)[row.kv_len - count :]
        return torch.from_numpy(table.reshape(-1)).to(self.device)

    def _prefill_group(self, number: int, window: int | None) -> Group:
        row, span = self.plan.rows[number], self.geometry.spans[number]
        cached = span.kv_len - span.q_len
        first = 0 if window is None else max(0, cached + 1 - window)
        keys = keys_of(row, self.arena, span.kv_len - first)
        causal = cached == 0 and window is None
        query = np.arange(cached, span.kv_len)[:, None]
        key = np.arange(first, span.kv_len)[None, :]
        return Group(
            num_sequences=1,
            num_queries=span.q_len,
            num_keys=span.kv_len - first,
            queries=slice(span.q_start, span.q_start + span.q_len),
            cells=strided([keys], keys.length, self.arena.num_cells) or self._gathered([keys], keys.length),
            bias=None if causal else self._bias(_sees(query, key, window)[None, None]),
            causal=causal,
        )

    def _rectangle(self, window: int | None) -> Group:
        (rows, columns), num_keys = self.geometry.shape, self.geometry.num_keys
        table = np.full((rows, num_keys), self.arena.padding_cell)
        for line, row in zip(table, self.plan.rows, strict=True):
            line[num_keys - row.kv_len :] = key_cells(row, self.arena)
        q_start = np.array([span.q_start for span in self.geometry.spans])[:, None, None]
        kv_start = np.array([span.kv_start for span in self.geometry.spans])[:, None, None]
        # Queries and keys counted in their own sequence; both axes end with the sequence's last token.
        query = (num_keys - columns + np.arange(columns))[None, :, None] - kv_start
        key = np.arange(num_keys)[None, None, :] - kv_start
        is_padding = np.arange(columns)[None, :, None] < q_start
        only_padding_key = np.arange(num_keys)[None, None, :] == 0
        allowed = np.where(is_padding, only_padding_key, (key >= 0) & _sees(query, key, window))
        return Group(
            num_sequences=rows,
            num_queries=columns,
            num_keys=num_keys,
            queries=slice(0, rows * columns),
            cells=torch.from_numpy(table.reshape(-1)).to(self.device),
            bias=self._bias(allowed[:, None]),
        )

    def _tensor(self, values: list[int] | list[list[int]]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)

    def _index(self, values: IntArray) -> slice | torch.Tensor:
        """Adjacent places as a slice, which reads without a copy; others as an index tensor."""
        start = int(values[0])
        if (values == np.arange(start, start + len(values))).all():
            return slice(start, start + len(values))
        return torch.from_numpy(values).to(self.device)

    def _bias(self, allowed: BoolArray) -> torch.Tensor | None:
        if allowed.all():
            return None
        mask = torch.from_numpy(np.ascontiguousarray(allowed)).to(self.device)
        bias = torch.zeros(mask.shape, dtype=self.dtype, device=self.device)
        return bias.masked_fill_(~mask, float("-inf"))


def _sees(query: IntArray, key: IntArray, window: int | None) -> BoolArray:
    """Causal, and within the window: key in (query - window, query], places in one sequence."""
    allowed: BoolArray = key <= query
    return allowed if window is None else allowed & (key > query - window)


def _check_blocks(row: PlanRow, arena: ArenaShape) -> None:
    """A wrong table must fail here: on an accelerator a bad index would end the whole process."""
    needed = row.kv_len - 1 if row.kind == "dead" else row.kv_len
    if needed > len(row.block_ids) * arena.block_size:
        raise ValueError(f"{row.request_id}: {len(row.block_ids)} KV blocks cannot hold {needed} keys")
    if row.block_ids and not 0 <= min(row.block_ids) <= max(row.block_ids) < arena.num_blocks:
        raise ValueError(
            f"{row.request_id}: its block table names a block outside 0 … {arena.num_blocks - 1}"
        )
    if not 0 <= row.slot < arena.num_slots:
        raise ValueError(f"{row.request_id}: slot {row.slot} is outside 0 … {arena.num_slots - 1}")
    if row.kind != "dead" and row.kv_len != row.start_position + len(row.token_ids):
        raise ValueError(f"{row.request_id}: kv_len {row.kv_len} does not end at its last token")
