"""vLLM and transformers, float32, greedy, give our tokens; and what they put through the model, step by step,
is what our records say.

`make test-peers`. Prints what was compared. Where schedules differ, and why, stands at the assertions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM as AutoModel

from engine.attach.recordings import read_recording
from engine.runner import Ready
from engine.stream.records import StepRecord
from engine.torch_runner import LoadOptions, TorchRunner
from tests.peers.jobs import Job, mixed, tutorial
from tests.torch_runner.packed_rows import assert_same_step, by_transformers, by_us

pytestmark = [pytest.mark.peers, pytest.mark.model]

ROOT = Path(__file__).parents[2]
VLLM = Path(os.environ.get("CBTUI_PEER_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))
CASES = {
    # name: (jobs, slots, token budget)
    "tutorial": (tutorial, 3, 2048),
    "mixed": (mixed, 8, 2048),
    "mixed, prompts in pieces": (mixed, 8, 96),
}
Outputs = list[list[int]]


@pytest.fixture(scope="module")
def runner(default_model_path: Path) -> Iterator[TorchRunner]:
    one = TorchRunner(str(default_model_path), options=LoadOptions(num_threads=1))
    one.start()
    assert isinstance(one.poll()[-1], Ready)
    yield one
    one.close()


def told(capsys: pytest.CaptureFixture[str], words: str) -> None:
    with capsys.disabled():
        print(f"\n    {words}", flush=True)


def names_of(records: list[StepRecord]) -> list[str]:
    """Request ids in the order of the jobs."""
    return [request.request_id for record in records for request in record.events.submitted]


# -- vLLM ----------------------------------------------------------------------------------------


def by_vllm(model: Path, folder: Path, jobs: list[Job], slots: int, budget: int) -> tuple[Outputs, list]:
    """All jobs through vLLM in its own environment; its outputs, and the records of its steps."""
    engine = {
        "max_model_len": 1024,
        "max_num_seqs": slots,
        "max_num_batched_tokens": budget,
        "block_size": 32,
        "enable_prefix_caching": False,
    }
    asked, stream = folder / "jobs.json", folder / "steps.jsonl"
    asked.write_text(json.dumps({"model": str(model), "jobs": jobs, "engine": engine}))
    run = subprocess.run(
        [str(VLLM), str(ROOT / "tests" / "peers" / "vllm_jobs.py"), str(asked), str(stream)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "engine" / "attach" / "in_vllm"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1]), list(read_recording(stream).records)


@pytest.mark.parametrize("case", CASES)
def test_vllm(
    case: str,
    default_model_path: Path,
    runner: TorchRunner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make, slots, budget = CASES[case]
    jobs = make(default_model_path)
    theirs, records = by_vllm(default_model_path, tmp_path, jobs, slots, budget)
    ours, steps = by_us(runner, jobs, slots=slots, budget=budget)
    assert ours == theirs
    their_steps = [record for record in records if isinstance(record, StepRecord)]
    theirs_named = [one.request_id for record in records for one in record.events.submitted]
    names = dict(zip(theirs_named, names_of(steps), strict=True))
    num_same = num_in_order = 0
    for a, b in zip(their_steps, steps, strict=False):
        fed = {names[one.request_id]: (one.token_ids, one.position, one.kv_len) for one in a.segments}
        if fed != {one.request_id: (one.token_ids, one.position, one.kv_len) for one in b.segments}:
            break
        num_same += 1
        num_in_order += [names[one.request_id] for one in a.segments] == [
            one.request_id for one in b.segments
        ]
    tokens = sum(map(len, ours))
    told(
        capsys,
        f"vLLM, {case}: {len(jobs)} requests, {tokens:,} output tokens equal; the same requests, tokens and "
        f"positions in {num_same} of {len(steps)} steps, in the same order in {num_in_order}",
    )
    # The rule is one: running requests first, then who waits, as far as slots and budget go. Rows lie in
    # another order once a request has ended and none took its place: vLLM moves the last one there.
    assert num_same == len(steps) == len(their_steps)
    # Every step costs what it costs here.
    assert [one.tokens for one in their_steps] == [one.tokens for one in steps]


# -- transformers --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_transformers(
    case: str, default_model_path: Path, runner: TorchRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    make, slots, budget = CASES[case]
    jobs = make(default_model_path)
    model = AutoModel.from_pretrained(
        default_model_path, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    model.generation_config.eos_token_id = None
    theirs, their_steps = by_transformers(model, jobs, slots=slots, budget=budget, num_blocks=128)
    ours, steps = by_us(runner, jobs, slots=slots, budget=budget)
    assert ours == theirs
    names = {f"job-{number:03}": name for number, name in enumerate(names_of(steps))}
    num_same = num_in_order = 0
    for a, b in zip(their_steps, steps, strict=False):
        scheduled = {names[one.request_id]: (one.position, one.q_len) for one in a.requests}
        if scheduled != {one.request_id: (one.position, one.q_len) for one in b.segments}:
            break
        num_in_order += assert_same_step(a, b, names)
        num_same += 1
    tokens = sum(map(len, ours))
    told(
        capsys,
        f"transformers, {case}: {len(jobs)} requests, {tokens:,} output tokens equal; input_ids, "
        f"position_ids and mask equal in {num_same} of {len(steps)} steps, in one order in {num_in_order}",
    )
    assert num_same == len(steps) == len(their_steps)
