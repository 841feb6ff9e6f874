"""The check on real (small, random) models: a right run passes on every route, and one wrong mask entry,
position, write cell or block id in one step is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from served_run import run, verdicts

from engine.config import EngineConfig
from engine.request import SamplingParams
from engine.runner import ForwardError
from engine.session import drain
from engine.step.check import Check
from engine.step.geometry import ArenaShape, Geometry, lay_out
from engine.step.plan import Plan, Reply
from engine.stream.records import Verification
from engine.torch_runner import TorchRunner, forward, step
from engine.torch_runner.forward import Route
from tests.torch_runner.sequences import make_runner
from tests.torch_runner.zoo import KINDS, VOCAB

MODES = ["static", "continuous-padded", "continuous", "chunked"]
PARAMS = SamplingParams(max_tokens=8)
#: Two decodes beside others; what is wrong in it is felt by the second request only.
FAULTY_STEP = 3


def _prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(VOCAB, (n,), generator=generator).tolist() for n in (5, 9, 11, 3)]


class Faulty:
    """A runner whose step `FAULTY_STEP` runs with something broken."""

    def __init__(self, inner: TorchRunner, around: Callable[[Plan], Any]) -> None:
        self._inner = inner
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, plan: Plan) -> Reply:
        if plan.step != FAULTY_STEP:
            return self._inner.run(plan)
        return self._around(plan)


def _verdicts(runner: TorchRunner, served_by: Any, mode: str, budget: int = 256) -> list[Verification]:
    records = run(
        served_by, runner.info, _prompts()[:3], PARAMS, mode=mode, block_size=4, max_num_batched_tokens=budget
    )
    assert not any(record.events.errors for record in records)
    return verdicts(runner, records, runner.info.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_run_is_the_same_alone_on_every_kind_of_model(kind: str) -> None:
    runner = make_runner(kind, "reference" if kind == "opt" else "fast", arenas=())
    found = _verdicts(runner, runner, "continuous", budget=12)
    assert [one.verdict for one in found] == ["same"] * 3
    assert max(one.drift for one in found) < 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_a_right_run_is_the_same_alone_in_every_mode_with_replayed_steps(mode: str) -> None:
    runner = make_runner("llama", "fast", arenas=(), replay=True)
    assert [one.verdict for one in _verdicts(runner, runner, mode, budget=12)] == ["same"] * 3


@pytest.mark.parametrize("name", ["position_ids", "write_index", "input_ids"])
@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_one_wrong_index_is_found(
    route: Route, mode: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner("llama", route, arenas=())

    def wrong(plan: Plan, arena: ArenaShape) -> Geometry:
        geometry = lay_out(plan, arena)
        values = list(getattr(geometry, name))
        values[geometry.logits_indices[1]] += 1 if name == "position_ids" else -1
        return msgspec.structs.replace(geometry, **{name: values})

    def faulty(plan: Plan) -> Reply:
        with monkeypatch.context() as patch:
            patch.setattr(step, "lay_out", wrong)
            return runner.run(plan)

    _is_found(_verdicts(runner, Faulty(runner, faulty), mode))


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_one_wrong_block_is_found(route: Route, mode: str) -> None:
    runner = make_runner("llama", route, arenas=())

    def faulty(plan: Plan) -> Reply:
        rows = list(plan.rows)
        table = [rows[0].block_ids[0], *rows[1].block_ids[1:]]
        rows[1] = msgspec.structs.replace(rows[1], block_ids=table)
        return runner.run(msgspec.structs.replace(plan, rows=rows))

    _is_found(_verdicts(runner, Faulty(runner, faulty), mode))


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("route", ["fast", "reference"])
def test_one_wrong_mask_entry_is_found(route: Route, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of its own is kept from one query (and, where one mask serves several rows, from that row's)."""
    runner = make_runner("llama", route, arenas=())
    build_mask, build_bias = forward.dense_mask, step.Step._bias

    def wrong_mask(geometry: Geometry, *rest: Any) -> torch.Tensor:
        mask = build_mask(geometry, *rest)
        span = geometry.spans[1]
        mask[span.row, 0, span.q_start, span.kv_start] = torch.finfo(mask.dtype).min
        return mask

    def wrong_bias(self: step.Step, allowed: step.BoolArray) -> torch.Tensor | None:
        allowed = allowed.copy()
        row = min(1, len(allowed) - 1)
        allowed[row, 0, -1, allowed[row, 0, -1].nonzero()[0][0]] = False
        return build_bias(self, allowed)

    def faulty(plan: Plan) -> Reply:
        with monkeypatch.context() as patch:
            patch.setattr(forward, "dense_mask", wrong_mask)
            patch.setattr(step.Step, "_bias", wrong_bias)
            return runner.run(plan)

    _is_found(_verdicts(runner, Faulty(runner, faulty), mode))


def _is_found(found: list[Verification]) -> None:
    """At the step of the fault or after it, and no other request is blamed."""
    assert [one.verdict for one in found] == ["same", "differs", "same"]
    assert found[1].step is not None and found[1].step >= FAULTY_STEP


def test_checking_between_steps_changes_no_step() -> None:
    """Steps and pieces of checks take turns on one model; replayed steps among them."""
    from engine.engine import Engine

    def outputs(with_checks: bool) -> list[Any]:
        runner = make_runner("llama", "fast", arenas=(), replay=True)
        engine = Engine(EngineConfig(block_size=4), runner, runner.info)
        for prompt in _prompts():
            engine.add_request(prompt, PARAMS)
        found = []
        for number, record in enumerate(drain(engine)):
            found += [(s.request_id, s.sampled, s.logprob) for s in getattr(record, "segments", ())]
            if with_checks:
                runner.check(Check(1, 4 * number, [number, 1, 2, 3], [4, 5]))
        return found

    assert outputs(True) == outputs(False)


def test_a_piece_without_its_beginning_is_refused_and_nothing_is_kept_of_a_checked_sequence() -> None:
    runner = make_runner("llama")
    runner.check(Check(1, 0, [1, 2, 3], []))
    with pytest.raises(ForwardError, match="beginning"):
        runner.check(Check(1, 4, [1], []))
    runner.check(Check(1, 0, [1, 2, 3], [4], is_last=True))
    with pytest.raises(ForwardError, match="beginning"):
        runner.check(Check(1, 3, [1], []))
    with pytest.raises(ForwardError, match="alone failed"):
        runner.check(Check(1, 0, [10**6], []))
