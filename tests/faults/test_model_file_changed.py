"""A model's file that is written to while it is in use ends the step with that cause; one that is replaced
changes nothing, for what is loaded is the old one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.model_store import ResolvedModel
from engine.request import SamplingParams
from engine.runner import Ready, RunnerDied
from engine.step.plan import Plan, PlanRow
from engine.torch_runner import LoadOptions, TorchRunner
from tests.torch_runner.sequences import ARENA, build
from tests.torch_runner.test_torch_load import make_tokenizer

PLAN = Plan(1, 0, 1, "ragged", [PlanRow("r0", 0, "prefill", [3, 1], 0, 2, [0], SamplingParams())])


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    build("llama").float().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    (path,) = folder.glob("*.safetensors")
    return path


def started(weights: Path) -> TorchRunner:
    source = ResolvedModel(name="small", source="small", path=str(weights.parent), kind="folder")
    options = LoadOptions(num_threads=1, prepack=False, cache_dir=weights.parent.parent / "cache")
    runner = TorchRunner(source, options=options)
    runner.start()
    assert isinstance(runner.poll()[-1], Ready)
    runner.open_arena(0, ARENA)
    return runner


def test_a_file_that_is_written_to_is_the_cause_of_the_end(weights: Path) -> None:
    runner = started(weights)
    assert runner.run(PLAN).sampled[0] is not None
    with weights.open("r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(b"\x00" * 64)
    with pytest.raises(RunnerDied, match=r"model\.safetensors was written to while it was in use"):
        runner.run(PLAN)


def test_a_file_that_is_replaced_changes_nothing(weights: Path) -> None:
    runner = started(weights)
    before = runner.run(PLAN).sampled
    new = weights.with_suffix(".new")
    new.write_bytes(b"something else")
    new.replace(weights)
    assert runner.run(PLAN).sampled == before
    weights.unlink()
    assert runner.run(PLAN).sampled == before
    runner.close()
    runner.close()
