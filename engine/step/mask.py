"""The attention mask of a step as runs of allowed keys, one run a query.

The mask is never stored and never built for display: it follows from the segments. `#` may attend,
`.` is masked:

    A p0  #.. ....      two new prompts packed together:
    A p1  ##. ....      A's tokens never see B's
    A p2  ### ....
    B p0  ... #...

In a layer with a sliding window a query sees the newest keys only, so many as the window is long, its own
included; a window of 2 turns A's third line into `.## ....`.
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


class LayerKind(msgspec.Struct, frozen=True):
    """Layers of a model that share one mask.

    `window`: keys a query sees in them, its own included; None: all before it. `layers`: their numbers,
    from 0; empty where the model does not say.
    """

    window: int | None = None
    layers: tuple[int, ...] = ()


def layer_kinds(windows: Sequence[int | None]) -> tuple[LayerKind, ...]:
    """A model's kinds of layers, by each layer's window, as they first come; at least one."""
    layers: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        layers.setdefault(window, []).append(layer)
    return tuple(LayerKind(window, tuple(of)) for window, of in layers.items()) or (LayerKind(),)


def query_run(segment: HasSpan, offset: int, window: int | None = None) -> tuple[int, int]:
    """Key columns [start, stop) that the segment's query number `offset` may attend to.

    Every earlier key of its own sequence and its own (causal, block-diagonal), of which a window leaves
    the newest.
    """
    cached = segment.kv_len - segment.q_len
    stop = segment.kv_start + cached + offset + 1
    return (segment.kv_start if window is None else max(segment.kv_start, stop - window)), stop


def query_runs(
    segments: Sequence[HasSpan], shape: tuple[int, int], window: int | None = None
) -> Iterator[QueryRun]:
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
                start, stop = query_run(segment, offset, window)
                yield QueryRun(row, segment.q_start + offset, start, stop, number)
            column = segment.q_start + segment.q_len
        for padding in range(column, shape[1]):
            yield QueryRun(row, padding, 0, 1, None)
