"""A model's file that is written to while it is in use ends the step with that cause; one that is replaced
changes nothing, for what is loaded is the old one. What is then read again is another model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from loop_desk import Desk, prompts

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model_store import ResolvedModel
from engine.request import SamplingParams
from engine.runner import Ready, RunnerDied
from engine.session import drain
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


class Restarted(TorchRunner):
    """Reads the model again at every start, as the model process does."""

    def start(self) -> None:
        self._loaded = None
        super().start()


def restarted(weights: Path) -> Restarted:
    source = ResolvedModel(name="small", source="small", path=str(weights.parent), kind="folder")
    options = LoadOptions(num_threads=1, prepack=False, cache_dir=weights.parent.parent / "cache")
    return Restarted(source, options=options)


def write_others(weights: Path) -> None:
    """Other weights into the very same file."""
    model = build("llama").float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    model.save_pretrained(weights.parent / "others")
    data = (weights.parent / "others" / weights.name).read_bytes()
    with weights.open("r+b") as file:
        file.write(data)


def outputs(desk: Desk) -> dict[str, list[int]]:
    ids: dict[str, list[int]] = {}
    for record in desk.steps:
        for segment in record.segments:
            if segment.sampled is not None:
                ids.setdefault(segment.request_id, []).append(segment.sampled)
    return ids


def test_what_was_begun_on_other_weights_is_not_gone_on_with(weights: Path) -> None:
    config = EngineConfig(max_num_seqs=2, max_model_len=32, num_blocks=16, block_size=4)
    desk = Desk(restarted(weights), config=config)  # type: ignore[arg-type]
    desk.commands.put(prompts("a b", "c", "b a", max_tokens=20))
    desk.turn(6)
    assert len(desk.steps) >= 3
    write_others(weights)
    desk.turn(8)
    finishes = [one for record in desk.history.since(0)[1] for one in record.events.finished]
    assert sorted(one.request_id for one in finishes) == ["r0", "r1", "r2"]
    assert {one.reason for one in finishes} == {"error"}
    causes = {one.request_id: one.error for one in finishes}
    assert "was written to while it was in use" in causes["r0"] + causes["r1"]
    assert "so it is another one" in causes["r2"], "it waited, and was told apart by nothing else"
    desk.say(prompts("a b", max_tokens=6), turns=20)
    assert desk.mailbox.latest().failure is None
    fresh = Desk(restarted(weights), config=config)  # type: ignore[arg-type]
    fresh.say(prompts("a b", max_tokens=6), turns=20)
    assert outputs(desk)["r3"] == outputs(fresh)["r0"] != outputs(desk)["r0"][:6]
    assert len(outputs(desk)["r3"]) == 6


def test_the_same_files_are_the_same_model(weights: Path) -> None:
    first, again = restarted(weights), restarted(weights)
    (weights.parent / "notes.log").write_text("not of the model")
    first.start()
    (weights.parent / "notes.log").write_text("longer, and still not of the model")
    again.start()
    assert first.info.fingerprint == again.info.fingerprint != ""


def test_a_run_without_a_screen_ends_with_the_cause(weights: Path) -> None:
    runner = restarted(weights)
    runner.start()
    config = EngineConfig(max_num_seqs=1, max_model_len=32, num_blocks=16, block_size=4)
    engine = Engine(config, runner, runner.info)
    runner.poll()
    for prompt in ([3, 1], [1, 3]):
        engine.add_request(prompt, SamplingParams(max_tokens=20, ignore_eos=True))
    records = drain(engine, restarts=1)
    next(records)
    write_others(weights)
    in_its_step, all_others = next(records), next(records)
    assert [(one.request_id, one.reason) for one in in_its_step.events.finished] == [("r0", "error")]
    assert [(one.request_id, one.reason) for one in all_others.events.finished] == [("r1", "error")]
    with pytest.raises(RunnerDied, match="so it is another one"):
        next(records)
