"""The recorder on vLLM's own scheduler, whose model is made up: cases no small server comes into."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.attach.recordings import read_recording
from engine.stream.records import NO_BLOCK, STOP_OR_ABORT, Record, StepRecord

pytestmark = [pytest.mark.peers, pytest.mark.model]

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("CBTUI_PEER_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))


class Cases:
    """What was recorded of each case, and what else it said."""

    def __init__(self, folder: Path, said: dict[str, Any]) -> None:
        self._folder = folder
        self.said = said

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self._folder / f"{name}.jsonl").read_text().splitlines()]

    def records(self, name: str) -> list[Record]:
        return list(read_recording(self._folder / f"{name}.jsonl").records)

    def steps(self, name: str) -> list[StepRecord]:
        return [record for record in self.records(name) if isinstance(record, StepRecord)]


@pytest.fixture(scope="module")
def cases(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    folder = tmp_path_factory.mktemp("cases")
    run = subprocess.run(
        [
            str(PYTHON),
            str(Path(__file__).with_name("scheduler_cases.py")),
            str(default_model_path),
            str(folder),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT / "engine" / "attach" / "in_vllm"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return Cases(folder, json.loads(run.stdout.splitlines()[-1]))


def test_no_case_is_a_fault(cases: Cases) -> None:
    faults = {name: said["faults"] for name, said in cases.said.items() if "faults" in said}
    assert len(faults) == 10 and not any(faults.values())


def test_a_prompt_in_chunks_is_one_request(cases: Cases) -> None:
    assert cases.said["sessions"]["alive"] == []
    lines = cases.lines("sessions")
    assert [one["id"] for one in lines if one["k"] == "a"] == ["a", "b"]
    chunks = [one["prompt"] for one in lines if one["k"] == "c" and one["r"] == 0]
    # Eight tokens, the first of two outputs (the last is dropped), five more.
    assert chunks == [[*range(1, 9), 108, *range(1, 6)]]
    records = cases.records("sessions")
    submitted = [one.request_id for record in records for one in record.events.submitted]
    finished = [(one.request_id, one.reason) for record in records for one in record.events.finished]
    assert submitted == ["a", "b"] and finished == [("a", STOP_OR_ABORT)]
    fed: dict[str, int] = {}
    for step in cases.steps("sessions"):
        for segment in step.segments:
            assert segment.position == fed.get(segment.request_id, 0)
            assert min(segment.token_ids) >= 0
            fed[segment.request_id] = segment.kv_len
    assert len(cases.steps("sessions")) > 20


def test_a_model_that_keeps_no_keys_has_no_tables(cases: Cases) -> None:
    steps = cases.steps("without_groups")
    assert len(steps) == 25
    assert not any(segment.block_ids for step in steps for segment in step.segments)


@pytest.mark.parametrize(
    ("name", "group", "is_windowed"),
    [("sliding", 0, True), ("chunked_local", 1, False), ("two_sizes", 0, False)],
)
def test_tables_are_the_servers_and_places_stay_right(
    cases: Cases, name: str, group: int, is_windowed: bool
) -> None:
    said = cases.said[name]
    assert (said["group"], said["windowed"]) == (group, is_windowed)
    last = cases.steps(name)[-1]
    told = {segment.request_id: list(segment.block_ids) for segment in last.segments}
    null = 0
    assert told == {
        request_id: [NO_BLOCK if block == null else block for block in table]
        for request_id, table in said["tables"].items()
    }
    assert cases.lines(name)[0]["block_size"] == 16
    left = sum(table.count(NO_BLOCK) for table in told.values())
    assert bool(left) == is_windowed
    computed = sum(slot.num_computed_tokens for slot in last.slots)
    shared = len(set(told["a"]) & set(told["b"]) - {NO_BLOCK})
    assert last.kv_tokens == computed - 16 * (left + shared)


def test_the_largest_common_size_is_not_the_shown_groups(cases: Cases) -> None:
    assert cases.said["two_sizes"]["scheduler_block_size"] == 48


def test_why_a_request_ended_is_vllms_word(cases: Cases) -> None:
    ended = [one for record in cases.records("ends") for one in record.events.finished]
    assert [(one.request_id, one.reason) for one in ended] == [
        ("a", "error"),
        ("b", "stop"),
        ("c", STOP_OR_ABORT),
    ]


def test_kv_taken_away_on_purpose_is_no_lack_of_blocks(cases: Cases) -> None:
    steps = cases.steps("reset")
    (step,) = [one for one in steps if one.events.preempted]
    assert [one.reason for one in step.events.preempted] == ["reset", "reset"]
    assert all(one.resumed for one in step.events.admitted) and step.tokens.recomputed == 18


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("not_chunked", [["token_budget"]]),
        ("paused", [[], ["paused"], ["paused"], [], []]),
        ("few_blocks", [["kv_blocks"], ["kv_blocks"], ["kv_blocks"]]),
    ],
)
def test_why_requests_wait(cases: Cases, name: str, reasons: list[list[str]]) -> None:
    assert [[one.reason for one in step.waiting] for step in cases.steps(name)] == reasons


def test_a_model_with_a_scheduler_of_its_own_keeps_it(cases: Cases) -> None:
    assert cases.said["diffusion"] == {"class": "DiffusionScheduler", "recorded": False}
