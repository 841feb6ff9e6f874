"""The attention mask of a step as runs of allowed keys, one run a query.

The mask is never stored and never built for display: it follows from the segments. `#` may attend,
`.` is masked:

    A p0  #.. ....      two new prompts packed together:
    A p1  ##. ....      A's tokens never see B's
    A p2  ### ....
    B p0  ... #...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec


class HasSpan(Protocol):
    """Anything that says where its queries and keys lie (`geometry.Span`, `records.Segment`)."""

    @property
    def row(self) -> int: ...
    @property
    def q_start(self) -> int: ...
    @property
    def q_len(self) -> int: ...
    @property
    def kv_start(self) -> int: ...
    @property
    def kv_len(self) -> int: ...


class QueryRun(msgspec.Struct, frozen=True):
    """One query and the keys it may attend to: columns [start, stop) of the key axis of `row`.

    `segment` is the number of the segment it belongs to, None for a padding query.
    """

    row: int
    column: int
    start: int
    stop: int
    segment: int | None


def query_run(segment: HasSpan, offset: int) -> tuple[int, int]:
    """Key columns [start, stop) that the segment's query number `offset` may attend to.

    Every earlier key of its own sequence and its own: causal, block-diagonal.
    """
    cached = segment.kv_len - segment.q_len
    return segment.kv_start, segment.kv_start + cached + offset + 1


def query_runs(segments: Sequence[HasSpan], shape: tuple[int, int]) -> Iterator[QueryRun]:
    """The runs of every query of a step, row by row. A padding query sees padding key 0 alone."""
    by_row: dict[int, list[tuple[int, HasSpan]]] = {}
    for number, segment in enumerate(segments):
        by_row.setdefault(segment.row, []).append((number, segment))
    for row in range(shape[0]):
        column = 0
        for number, segment in by_row.get(row, []):
            for padding in range(column, segment.q_start):
                yield QueryRun(row, padding, 0, 1, None)
            for offset in range(segment.q_len):
                start, stop = query_run(segment, offset)
                yield QueryRun(row, segment.q_start + offset, start, stop, number)
            column = segment.q_start + segment.q_len
        for padding in range(column, shape[1]):
            yield QueryRun(row, padding, 0, 1, None)
