"""Where everything of a plan lies: the pure function from a plan to positions, cells and segments.

`lay_out` is the only place that computes these; the torch runner, the fake runner and the step
records all take them from here, so what is drawn is what went through the model.

Key order. Each sequence's keys are `[cached_i | new_i]`, sequences side by side in slot order, so the
mask's blocks lie on the diagonal. (The tutorial's drawing groups all cached keys first; models with
position biases derived from key order would silently break with that.)
"""

from __future__ import annotations

import msgspec

from engine.step.plan import Plan, PlanRow

#: What padding cells feed; any valid token id would do, its output is never read.
PAD_TOKEN_ID = 0


class ArenaShape(msgspec.Struct, frozen=True):
    """The KV arena's cells: `num_blocks * block_size` for requests, then scratch.

    Scratch cell 0 takes what padding positions write; cell 1 + slot is for a dead row's own key where its
    blocks have no free place.
    """

    num_blocks: int
    block_size: int
    num_slots: int

    @property
    def padding_cell(self) -> int:
        return self.num_blocks * self.block_size

    def dead_cell(self, slot: int) -> int:
        return self.num_blocks * self.block_size + 1 + slot

    @property
    def num_cells(self) -> int:
        return self.num_blocks * self.block_size + 1 + self.num_slots

    def cell(self, block_ids: list[int], position: int) -> int:
        """The cell of a sequence's key at `position`, through its block table."""
        return block_ids[position // self.block_size] * self.block_size + position % self.block_size


class Span(msgspec.Struct, frozen=True):
    """Where one plan row lies in the step's tensor and on the mask's key axis.

    Attributes:
        row: tensor row: 0 in a ragged layout, the plan row's number in a padded one.
        q_start, q_len: its columns in that row.
        kv_start, kv_len: its keys on the key axis (of the whole step when ragged, of its row when padded).
        position: place in its own sequence of its first fed token.
    """

    row: int
    q_start: int
    q_len: int
    kv_start: int
    kv_len: int
    position: int


class Geometry(msgspec.Struct, frozen=True):
    """A plan laid out. Flat lists are row-major over `shape`.

    Attributes:
        shape: (rows, columns) of the step's token tensor: `[1, T]` or `[B, L]`.
        num_keys: length of the key axis: all sequences' keys when ragged, one row's when padded.
        input_ids, position_ids, write_index: `rows * columns` ints each.
        logits_indices: flat places whose logits are sampled, in plan order.
        sampled_rows: the plan rows these belong to.
        spans: one a plan row.
    """

    shape: tuple[int, int]
    num_keys: int
    input_ids: list[int]
    position_ids: list[int]
    write_index: list[int]
    logits_indices: list[int]
    sampled_rows: list[int]
    spans: list[Span]


def lay_out(plan: Plan, arena: ArenaShape) -> Geometry:
    """Positions, write cells, sampled places and spans of a plan.

    Raises:
        ValueError: the plan has no rows.
    """
    if not plan.rows:
        raise ValueError("a plan needs at least one row")
    spans = _ragged_spans(plan.rows) if plan.layout == "ragged" else _padded_spans(plan.rows)
    if plan.layout == "ragged":
        shape = (1, sum(s.q_len for s in spans))
        num_keys = sum(s.kv_len for s in spans)
    else:
        shape = (len(spans), max(s.q_len for s in spans))
        num_keys = spans[0].kv_start + spans[0].kv_len
    size = shape[0] * shape[1]
    input_ids, position_ids = [PAD_TOKEN_ID] * size, [0] * size
    write_index = [arena.padding_cell] * size
    logits_indices, sampled_rows = [], []
    for number, (row, span) in enumerate(zip(plan.rows, spans, strict=True)):
        at = span.row * shape[1] + span.q_start
        end = at + span.q_len
        input_ids[at:end] = row.token_ids
        position_ids[at:end] = range(span.position, span.position + span.q_len)
        write_index[at:end] = _write_cells(row, arena)
        if row.sampling is not None:
            logits_indices.append(end - 1)
            sampled_rows.append(number)
    return Geometry(
        shape, num_keys, input_ids, position_ids, write_index, logits_indices, sampled_rows, spans
    )


def own_cell(row: PlanRow, arena: ArenaShape) -> int | None:
    """Where a dead row's key goes: the free place behind its frozen keys, else its scratch cell.

    Behind them it lies beside what it attends with, so a dead row is read as a live one is. No key of
    anyone's stands there: the block is the row's own, and its stored keys end before. None: not dead.
    """
    if row.kind != "dead":
        return None
    position = row.kv_len - 1
    if position < len(row.block_ids) * arena.block_size:
        return arena.cell(row.block_ids, position)
    return arena.dead_cell(row.slot)


def read_cells(row: PlanRow, arena: ArenaShape) -> list[int]:
    """The arena cells of a row's `kv_len` keys, oldest first, its own last."""
    own = own_cell(row, arena)
    if own is None:
        return [arena.cell(row.block_ids, p) for p in range(row.kv_len)]
    return [*(arena.cell(row.block_ids, p) for p in range(row.kv_len - 1)), own]


def _write_cells(row: PlanRow, arena: ArenaShape) -> list[int]:
    own = own_cell(row, arena)
    if own is not None:
        return [own]
    start = row.start_position
    return [arena.cell(row.block_ids, p) for p in range(start, start + len(row.token_ids))]


def _ragged_spans(rows: list[PlanRow]) -> list[Span]:
    spans, q_start, kv_start = [], 0, 0
    for row in rows:
        q_len = len(row.token_ids)
        spans.append(Span(0, q_start, q_len, kv_start, row.kv_len, row.start_position))
        q_start += q_len
        kv_start += row.kv_len
    return spans


def _padded_spans(rows: list[PlanRow]) -> list[Span]:
    """Left padding, as the tutorial draws it, on both axes.

    A row with padding queries has at least one padding key (column 0): a query with no key at all
    would be a softmax over nothing.
    """
    longest = max(len(row.token_ids) for row in rows)
    num_keys = max(row.kv_len + (len(row.token_ids) < longest) for row in rows)
    return [
        Span(i, longest - len(r.token_ids), len(r.token_ids), num_keys - r.kv_len, r.kv_len, r.start_position)
        for i, r in enumerate(rows)
    ]
