"""One wrong position, mask run, write index or block id turns the equality check red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from engine.step.geometry import ArenaShape, Geometry, lay_out
from engine.step.plan import Layout, Plan
from engine.torch_runner import forward, step
from engine.torch_runner.forward import Route
from tests.torch_runner.sequences import MIXED, assert_equals_alone, make_runner, run_step, three_sequences

#: The step at which a fault is put in: two decodes beside a piece of a prefill.
FAULTY_STEP = 3


def _check(route: Route, layout: Layout, break_it: Callable[[], Any], mend: Callable[[], Any]) -> None:
    runner, sequences = make_runner("llama", route), three_sequences()
    for number, feeds in enumerate(MIXED):
        if number == FAULTY_STEP:
            break_it()
        run_step(runner, feeds, sequences, layout)
        if number == FAULTY_STEP:
            mend()
    assert_equals_alone("llama", sequences)


def _changed(geometry: Geometry, name: str, layout: Layout) -> Geometry:
    """One entry of a flat list changed: that of slot 0's decoded token."""
    span = geometry.spans[0]
    at = span.row * geometry.shape[1] + span.q_start
    values = list(getattr(geometry, name))
    values[at] += 1 if name == "position_ids" else -1
    return msgspec.structs.replace(geometry, **{name: values})


@pytest.mark.parametrize("name", ["position_ids", "write_index", "input_ids"])
@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_one_wrong_entry_is_caught(
    route: Route, layout: Layout, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(plan: Plan, arena: ArenaShape) -> Geometry:
        return _changed(lay_out(plan, arena), name, layout)

    with pytest.raises(AssertionError):
        _check(route, layout, lambda: monkeypatch.setattr(step, "lay_out", wrong), monkeypatch.undo)


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_one_wrong_mask_run_is_caught_on_the_reference_route(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = forward.dense_mask

    def wrong(geometry: Geometry, *rest: Any) -> torch.Tensor:
        mask = build(geometry, *rest)
        span = geometry.spans[1]
        mask[span.row, 0, span.q_start, span.kv_start] = torch.finfo(mask.dtype).min
        return mask

    with pytest.raises(AssertionError):
        _check(
            "reference", layout, lambda: monkeypatch.setattr(forward, "dense_mask", wrong), monkeypatch.undo
        )


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_one_wrong_mask_run_is_caught_on_the_fast_route(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = step.Step._bias

    def wrong(self: step.Step, allowed: step.BoolArray) -> torch.Tensor | None:
        allowed = allowed.copy()
        own = allowed[0, 0, -1].nonzero()[0]
        allowed[0, 0, -1, own[0]] = False
        return build(self, allowed)

    with pytest.raises(AssertionError):
        _check("fast", layout, lambda: monkeypatch.setattr(step.Step, "_bias", wrong), monkeypatch.undo)


@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_one_wrong_block_is_caught(route: Route, layout: Layout) -> None:
    runner, sequences = make_runner("llama", route), three_sequences()
    for number, feeds in enumerate(MIXED):
        table = sequences[0].block_ids
        if number == FAULTY_STEP:
            sequences[0].block_ids = [sequences[1].block_ids[0], *table[1:]]
        run_step(runner, feeds, sequences, layout)
        sequences[0].block_ids = table
    with pytest.raises(AssertionError):
        assert_equals_alone("llama", sequences)


@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_nothing_broken_is_green(route: Route, layout: Layout) -> None:
    _check(route, layout, lambda: None, lambda: None)
