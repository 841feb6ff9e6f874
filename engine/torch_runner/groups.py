"""Groups: queries that attend in one call, and where in the arena their keys lie.

    ragged   the single-token rows in as few groups as pays (L = 1), one group a prefill (S = 1)
    padded   the real rectangle, padding queries and padding keys included

Sequences whose keys lie at one stride, which is what home runs are for, are read as one strided view of
the arena, without a copy; others are gathered. Rows share a call while what the longest makes the
others read in vain costs less than a call of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.step.geometry import ArenaShape, own_cell
from engine.step.plan import PlanRow

IntArray = npt.NDArray[np.int64]

#: What one more attention call costs, in keys read (measured on a CPU: 10 µs a layer, 0.2 µs a key).
CALL_COST = 50


class Strided(NamedTuple):
    """Keys of sequence s begin at cell `first + s * stride`, adjacent to each other."""

    first: int
    stride: int


class Keys(NamedTuple):
    """One row's keys: `length` cells from `first` on; `first` is None where they are not adjacent."""

    row: PlanRow
    first: int | None
    length: int


@dataclass
class Group:
    """Queries that attend in one call.

    Attributes:
        num_sequences, num_queries, num_keys: S, L and K.
        queries: flat places `[S * L]` in the step's tensor, row-major; a slice where they are adjacent.
        cells: arena cells of their keys: strided, or an index `[S * K]`.
        bias: additive mask `[S, 1, L, K]`, 0 or -inf; None: no mask beside `causal`.
        causal: query i sees keys 0 … i (only where nothing is cached, so L = K).
    """

    num_sequences: int
    num_queries: int
    num_keys: int
    queries: slice | torch.Tensor
    cells: Strided | torch.Tensor
    bias: torch.Tensor | None = None
    causal: bool = False
    _stacked: dict[int, torch.Tensor] = field(default_factory=dict)

    def read(self, layer: torch.Tensor) -> torch.Tensor:
        """The group's part `[S, heads, K, dim]` of a layer's `[heads, cells, dim]`; a view if strided."""
        if isinstance(self.cells, torch.Tensor):
            rows = layer.index_select(1, self.cells)
            shape = (rows.shape[0], self.num_sequences, self.num_keys, rows.shape[2])
            return rows.view(shape).transpose(0, 1)
        first, stride = self.cells
        heads, _, dim = layer.shape
        of_head, of_cell, of_number = layer.stride()
        return layer.as_strided(
            (self.num_sequences, heads, self.num_keys, dim),
            (stride * of_cell, of_head, of_cell, of_number),
            layer.storage_offset() + first * of_cell,
        )

    def stacked_bias(self, num_groups: int) -> torch.Tensor | None:
        """The bias for `num_groups` query heads of a key head stacked on the query axis: `[S, 1, G*L, K]`."""
        if self.bias is None or self.num_queries == 1:
            return self.bias
        if num_groups not in self._stacked:
            self._stacked[num_groups] = self.bias.repeat(1, 1, num_groups, 1)
        return self._stacked[num_groups]


class Groups(NamedTuple):
    """A step's groups; `in_order`: their queries follow one another and are all there are."""

    members: list[Group]
    in_order: bool


def key_cells(row: PlanRow, arena: ArenaShape) -> IntArray:
    """`geometry.read_cells`, vectorised: a test holds them equal."""
    own = own_cell(row, arena)
    num_cached = row.kv_len if own is None else row.kv_len - 1
    blocks = np.asarray(row.block_ids, dtype=np.int64)
    cells = (blocks[:, None] * arena.block_size + np.arange(arena.block_size)).reshape(-1)[:num_cached]
    return cells if own is None else np.append(cells, own)


def keys_of(row: PlanRow, arena: ArenaShape, window: int | None) -> Keys:
    """Where a row's keys lie: all of them, or the last `window`."""
    own, size = own_cell(row, arena), arena.block_size
    skipped = 0 if window is None else max(0, row.kv_len - window)
    count = row.kv_len - skipped
    if row.kv_len == 1 and own is not None:
        return Keys(row, own, 1)
    if own == arena.dead_cell(row.slot):
        return Keys(row, None, count)
    first, last = row.block_ids[0], -(-row.kv_len // size)
    adjacent = row.block_ids[:last] == list(range(first, first + last))
    return Keys(row, first * size + skipped if adjacent else None, count)


def share_calls(rows: Sequence[Keys], num_cells: int, common: int | None) -> list[list[int]]:
    """Which single-token rows attend together: places in `rows`, a list a call.

    Args:
        num_cells: of the arena: a view may not reach past it.
        common: keys every row is given, as in a padded layout; None: as many as the longest of its call.
    """
    calls: list[list[int]] = []
    for adjacent in (True, False):
        call: list[int] = []
        for place, row in enumerate(rows):
            if (row.first is not None) != adjacent:
                continue
            if call and not _joins([rows[i] for i in call], row, num_cells, common):
                calls.append(call)
                call = []
            call.append(place)
        if call:
            calls.append(call)
    return calls


def _joins(call: list[Keys], row: Keys, num_cells: int, common: int | None) -> bool:
    longest = common or max(row.length, *(other.length for other in call))
    if row.first is not None:
        starts = [keys.first for keys in (*call, row) if keys.first is not None]
        stride = starts[1] - starts[0]
        if stride <= 0 or starts[-1] - starts[-2] != stride or starts[-1] + longest > num_cells:
            return False
    if common:
        return True
    before = max(other.length for other in call)
    return (longest - before) * len(call) + longest - row.length <= CALL_COST


def strided(call: Sequence[Keys], num_keys: int, num_cells: int) -> Strided | None:
    """One view over the rows of a call; None where there is none."""
    starts = [keys.first for keys in call if keys.first is not None]
    if len(starts) < len(call) or starts[-1] + num_keys > num_cells:
        return None
    return Strided(starts[0], starts[1] - starts[0] if len(starts) > 1 else 1)


def ordered(groups: Iterable[Group], num_places: int) -> Groups:
    """Groups by their first query."""
    members = list(groups)
    slices = [group.queries for group in members if isinstance(group.queries, slice)]
    if len(slices) < len(members):
        return Groups(members, False)
    members.sort(key=lambda group: group.queries.start if isinstance(group.queries, slice) else 0)
    bounds = sorted((part.start, part.stop) for part in slices)
    ends = [0, *(stop for _, stop in bounds)]
    return Groups(members, [start for start, _ in bounds] == ends[:-1] and ends[-1] == num_places)
