"""A plan as tensors: model inputs, write cells, and the groups its attention works on.

Everything that depends on the step alone is built here once, with numpy, and not once a layer.
A group is a set of queries that attend together, `[S, L]` queries beside `[S, K]` cells:

    ragged   one group of all single-token rows (S rows, L = 1), one group a prefill (S = 1, causal)
    padded   one group: the real rectangle, padding queries and padding keys included

Geometry comes from `engine.step.geometry`; this module adds no rule of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from engine.step.geometry import ArenaShape, Geometry, Span, lay_out, read_cells
from engine.step.plan import Plan, PlanRow

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass
class Group:
    """Queries that attend in one call.

    Attributes:
        num_sequences, num_queries, num_keys: S, L and K.
        queries: flat places `[S * L]` in the step's tensor, row-major; a slice where they are adjacent.
        cells: arena cells `[S * K]` of their keys; a slice where they are adjacent.
        bias: additive mask `[S, 1, L, K]`, 0 or -inf; None: no mask beside `causal`.
        causal: query i sees keys 0 … i (only where nothing is cached, so L = K).
    """

    num_sequences: int
    num_queries: int
    num_keys: int
    queries: slice | torch.Tensor
    cells: slice | torch.Tensor
    bias: torch.Tensor | None = None
    causal: bool = False
    _stacked: dict[int, torch.Tensor] = field(default_factory=dict)

    def stacked_bias(self, num_groups: int) -> torch.Tensor | None:
        """The bias for `num_groups` query heads of a key head stacked on the query axis: `[S, 1, G*L, K]`."""
        if self.bias is None or self.num_queries == 1:
            return self.bias
        if num_groups not in self._stacked:
            self._stacked[num_groups] = self.bias.repeat(1, 1, num_groups, 1)
        return self._stacked[num_groups]


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
        self.write_index = self._tensor(self.geometry.write_index)
        self.logits_indices = self._tensor(self.geometry.logits_indices)
        self._groups: dict[int | None, list[Group]] = {}
        #: Sliding windows the attention calls asked for, by layer: what the load-time probe looks at.
        self.windows_seen: dict[int, int | None] = {}

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

    @property
    def logits_to_keep(self) -> torch.Tensor:
        """The sampled places as transformers takes them: indices for one row, a boolean mask for several."""
        rows, columns = self.geometry.shape
        if rows == 1:
            return self.logits_indices
        mask = torch.zeros(rows * columns, dtype=torch.bool, device=self.device)
        mask[self.logits_indices] = True
        return mask.view(rows, columns)

    def groups(self, window: int | None) -> list[Group]:
        """The step's groups for layers that see the last `window` keys only; None: all keys."""
        if window is not None and window >= max(row.kv_len for row in self.plan.rows):
            window = None
        if window not in self._groups:
            cells = [key_cells(row, self.arena) for row in self.plan.rows]
            build = self._ragged_groups if self.plan.layout == "ragged" else self._padded_group
            self._groups[window] = build(cells, window)
        return self._groups[window]

    def _ragged_groups(self, cells: list[IntArray], window: int | None) -> list[Group]:
        spans = self.geometry.spans
        groups = []
        singles = [i for i, span in enumerate(spans) if span.q_len == 1]
        if singles:
            groups.append(
                self._single_token_group([spans[i] for i in singles], [cells[i] for i in singles], window)
            )
        for span, own in zip(spans, cells, strict=True):
            if span.q_len > 1:
                groups.append(self._prefill_group(span, own, window))
        return groups

    def _single_token_group(self, spans: list[Span], cells: list[IntArray], window: int | None) -> Group:
        if window is not None:
            cells = [own[-window:] for own in cells]
        lengths = np.array([len(own) for own in cells])
        num_keys = int(lengths.max())
        table = np.full((len(spans), num_keys), self.arena.padding_cell)
        for row, own in zip(table, cells, strict=True):
            row[: len(own)] = own
        allowed = np.arange(num_keys) < lengths[:, None]
        return Group(
            num_sequences=len(spans),
            num_queries=1,
            num_keys=num_keys,
            queries=self._index(np.array([span.q_start for span in spans])),
            cells=self._index(table.reshape(-1)),
            bias=self._bias(allowed[:, None, None, :]),
        )

    def _prefill_group(self, span: Span, cells: IntArray, window: int | None) -> Group:
        cached = span.kv_len - span.q_len
        first = 0 if window is None else max(0, cached + 1 - window)
        causal = cached == 0 and window is None
        query = np.arange(cached, span.kv_len)[:, None]
        key = np.arange(first, span.kv_len)[None, :]
        return Group(
            num_sequences=1,
            num_queries=span.q_len,
            num_keys=span.kv_len - first,
            queries=slice(span.q_start, span.q_start + span.q_len),
            cells=self._index(cells[first:]),
            bias=None if causal else self._bias(_sees(query, key, window)[None, None]),
            causal=causal,
        )

    def _padded_group(self, cells: list[IntArray], window: int | None) -> list[Group]:
        (rows, columns), num_keys = self.geometry.shape, self.geometry.num_keys
        table = np.full((rows, num_keys), self.arena.padding_cell)
        for row, own in zip(table, cells, strict=True):
            row[num_keys - len(own) :] = own
        q_start = np.array([span.q_start for span in self.geometry.spans])[:, None, None]
        kv_start = np.array([span.kv_start for span in self.geometry.spans])[:, None, None]
        # Queries and keys counted in their own sequence; both axes end with the sequence's last token.
        query = (num_keys - columns + np.arange(columns))[None, :, None] - kv_start
        key = np.arange(num_keys)[None, None, :] - kv_start
        is_padding = np.arange(columns)[None, :, None] < q_start
        only_padding_key = np.arange(num_keys)[None, None, :] == 0
        allowed = np.where(is_padding, only_padding_key, (key >= 0) & _sees(query, key, window))
        group = Group(
            num_sequences=rows,
            num_queries=columns,
            num_keys=num_keys,
            queries=slice(0, rows * columns),
            cells=self._index(table.reshape(-1)),
            bias=self._bias(allowed[:, None]),
        )
        return [group]

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


def key_cells(row: PlanRow, arena: ArenaShape) -> IntArray:
    """`geometry.read_cells`, vectorised: a test holds them equal."""
    num_cached = row.kv_len - 1 if row.kind == "dead" else row.kv_len
    blocks = np.asarray(row.block_ids, dtype=np.int64)
    cells = (blocks[:, None] * arena.block_size + np.arange(arena.block_size)).reshape(-1)[:num_cached]
    if row.kind == "dead":
        cells = np.append(cells, arena.dead_cell(row.slot))
    return cells


def _sees(query: IntArray, key: IntArray, window: int | None) -> BoolArray:
    """Causal, and within the window: key in (query - window, query], places in one sequence."""
    allowed: BoolArray = key <= query
    return allowed if window is None else allowed & (key > query - window)


def _check_blocks(row: PlanRow, arena: ArenaShape) -> None:
    """A wrong table must fail here: on an accelerator a bad index would end the whole process."""
    needed = row.kv_len - 1 if row.kind == "dead" else row.kv_len
    if needed > len(row.block_ids) * arena.block_size:
        raise ValueError(f"{row.request_id}: {len(row.block_ids)} KV blocks cannot hold {needed} keys")
    if any(not 0 <= block < arena.num_blocks for block in row.block_ids):
        raise ValueError(
            f"{row.request_id}: its block table names a block outside 0 … {arena.num_blocks - 1}"
        )
    if not 0 <= row.slot < arena.num_slots:
        raise ValueError(f"{row.request_id}: slot {row.slot} is outside 0 … {arena.num_slots - 1}")
    if row.kind != "dead" and row.kv_len != row.start_position + len(row.token_ids):
        raise ValueError(f"{row.request_id}: kv_len {row.kv_len} does not end at its last token")
