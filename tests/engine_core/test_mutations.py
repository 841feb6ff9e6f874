"""One wrong position, mask run, write index or block id must change an output: the fake runner is no rubber
stamp, so the equality properties can fail."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from oracle import solo_outputs

import engine.fake
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.step.geometry import ArenaShape, Geometry, lay_out, read_cells
from engine.step.plan import Plan, PlanRow

PROMPTS = [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
PARAMS = SamplingParams(max_tokens=8)


def outputs(runner: FakeRunner, mode: str) -> list[list[int]]:
    engine = Engine(EngineConfig(mode=mode, block_size=2), runner, runner.info)
    ids = [engine.add_request(prompt, PARAMS) for prompt in PROMPTS]
    requests = [engine.requests[i] for i in ids]
    while engine.has_work:
        engine.step()
    return [request.output_token_ids for request in requests]


def wrong_position(plan: Plan, arena: ArenaShape) -> Geometry:
    geometry = lay_out(plan, arena)
    if plan.step != 3:
        return geometry
    positions = list(geometry.position_ids)
    positions[geometry.logits_indices[1]] += 1
    return msgspec.structs.replace(geometry, position_ids=positions)


def wrong_write_index(plan: Plan, arena: ArenaShape) -> Geometry:
    geometry = lay_out(plan, arena)
    if plan.step != 3:
        return geometry
    cells = list(geometry.write_index)
    place = geometry.logits_indices[1]
    cells[place] = arena.num_blocks * arena.block_size - 1
    return msgspec.structs.replace(geometry, write_index=cells)


def wrong_block(row: PlanRow, arena: ArenaShape) -> list[int]:
    if row.request_id == "r1" and row.output_index == 3:
        row = msgspec.structs.replace(row, block_ids=[row.block_ids[0] + 1, *row.block_ids[1:]])
    return read_cells(row, arena)


MODES = ["static", "continuous-padded", "continuous"]
ALONE = [solo_outputs(prompt, PARAMS) for prompt in PROMPTS]


@pytest.mark.parametrize("mode", MODES)
def test_unbroken_outputs_equal_those_alone(mode: str) -> None:
    assert outputs(FakeRunner(), mode) == ALONE


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "broken",
    [
        lambda: FakeRunner(geometry=wrong_position),
        lambda: FakeRunner(geometry=wrong_write_index),
        lambda: FakeRunner(reader=wrong_block),
    ],
    ids=["position", "write index", "block id"],
)
def test_one_wrong_index_changes_the_output_of_that_request_alone(
    mode: str, broken: Callable[[], FakeRunner]
) -> None:
    found = outputs(broken(), mode)
    assert found[1] != ALONE[1]
    assert [found[0], found[2]] == [ALONE[0], ALONE[2]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "shift", [(-1, 0), (0, 1), (0, -1)], ids=["one before", "one after", "own key missing"]
)
def test_one_wrong_mask_run_changes_an_output(
    mode: str, shift: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = engine.fake.query_run

    def wrong(span: object, offset: int, window: int | None) -> tuple[int, int]:
        start, stop = right(span, offset, window)  # type: ignore[arg-type]
        if span.position == 4:  # type: ignore[attr-defined]
            start, stop = max(0, start + shift[0]), stop + shift[1]
            if shift[1] > 0:
                start += 1  # an equal number of keys, all but one its own
        return start, stop

    monkeypatch.setattr(engine.fake, "query_run", wrong)
    assert outputs(FakeRunner(), mode) != ALONE
