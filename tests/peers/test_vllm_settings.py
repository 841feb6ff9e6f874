"""A real vLLM in the settings it is served with: what its recorder tells is what its API answered.

`make test-peers`. A model of random weights, a server for each setting; prints what was compared.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.attach.recordings import read_recording
from engine.attach.vllm_ranks import ranks_beside
from engine.stream.records import Record
from engine.stream.trace_files import Trace
from tests.attach.following import following
from tests.peers.tiny_llama import make_tiny_llama
from tests.peers.told import assert_ends_told, assert_sound, assert_told, steps_of
from tests.peers.vllm_server import ROOT, VLLM, Asked, vllm_server

pytestmark = [pytest.mark.peers, pytest.mark.model]

#: So few blocks and tokens a step that requests give way and prompts go in pieces.
TIGHT = (
    *("--max-num-batched-tokens", "32", "--block-size", "32", "--num-gpu-blocks-override", "12"),
    *("--max-model-len", "256", "--max-num-seqs", "6"),
)
ASYNC = (str(VLLM.with_name("python")), str(ROOT / "tests" / "peers" / "vllm_async.py"))
#: On a CPU vLLM makes what passes between two stages in a warm-up, and that only for a compiled model.
COMPILED = ("--no-enforce-eager", "--compilation-config", json.dumps({"mode": 2, "backend": "eager"}))


@dataclass(frozen=True)
class Setting:
    """How a server is started. `facts`: what its header must say."""

    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = (str(VLLM),)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_tight(self) -> bool:
        return self.arguments[-len(TIGHT) :] == TIGHT


SETTINGS = {
    "bfloat16": Setting(("--dtype", "bfloat16"), facts={"dtype": "bfloat16"}),
    "tight": Setting(TIGHT),
    "asynchronous, tight": Setting(TIGHT, ASYNC, {"async_scheduling": True}),
    "tensor-parallel": Setting(("--tensor-parallel-size", "2"), facts={"tensor_parallel": 2}),
    "pipeline-parallel, tight": Setting(
        (*COMPILED, "--pipeline-parallel-size", "2", *TIGHT), facts={"pipeline_parallel": 2}
    ),
}


@pytest.fixture(scope="module")
def model(default_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny"), default_model_path)


def requests(number: int = 12, longest: int = 150) -> list[Asked]:
    """Every second begins as the others do; every third is answered three times, sampled."""
    random = Random(3)
    common = tuple(random.randrange(5, 40_000) for _ in range(100))
    asked = []
    for place in range(number):
        own = tuple(random.randrange(5, 40_000) for _ in range(random.randint(3, longest)))
        prompt = ((common if place % 2 else ()) + own)[:200]
        is_sampled = place % 3 == 0
        asked.append(
            Asked(f"job-{place}", prompt, random.randint(3, 40), 3 if is_sampled else 1, 0.8 * is_sampled)
        )
    return asked


def told(capsys: pytest.CaptureFixture[str], name: str, records: list[Record], num_tokens: int) -> None:
    steps = steps_of(records)
    admitted = [one for step in steps for one in step.events.admitted]
    with capsys.disabled():
        print(
            f"\n    vLLM, {name}: {num_tokens:,} output tokens told as answered, in {len(steps):,} steps; "
            f"{sum(len(step.events.preempted) for step in steps)} preemptions, "
            f"{sum(one.num_cached_tokens for one in admitted):,} tokens found in the cache, "
            f"{sum(one.num_prompt_left > 0 for step in steps for one in step.segments)} pieces of prompts",
            flush=True,
        )


def whole(path: Path) -> Trace:
    trace = read_recording(path)
    assert not trace.error
    return trace


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_told_is_what_was_answered(
    name: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = SETTINGS[name]
    stream = tmp_path / "steps.jsonl"
    with vllm_server(model, tmp_path, str(stream), *setting.arguments, command=setting.command) as server:
        answers = server.answers(requests())
    header = json.loads(stream.read_bytes().partition(b"\n")[0])
    assert header | setting.facts == header
    trace = whole(stream)
    num_tokens = assert_told(answers, trace.records)
    assert_sound(trace.records, trace.header.block_size)
    told(capsys, name, list(trace.records), num_tokens)
    if setting.is_tight:
        steps = steps_of(trace.records)
        assert any(step.events.preempted for step in steps)
        assert any(one.num_cached_tokens for step in steps for one in step.events.admitted)
        assert any(one.num_prompt_left for step in steps for one in step.segments)


@pytest.mark.parametrize("name", ["asynchronous, tight"])
def test_a_screen_that_comes_and_goes_follows_each_time(
    name: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = SETTINGS[name]
    place = tmp_path / "run" / "s"
    seen: list[list[Record]] = []
    with (
        vllm_server(model, tmp_path, f"unix:{place}", *setting.arguments, command=setting.command) as server,
        ThreadPoolExecutor(48) as pool,
    ):
        asked = [pool.submit(server.answer, one) for one in requests(48)]
        while not all(one.done() for one in asked):
            with following(f"unix:{place}") as one:
                one.wait(lambda one=one: one.num_finished > 4 or all(a.done() for a in asked))
            seen.append(one.records)
        answers = [one.result() for one in asked]
    numbers = [assert_ends_told(answers, records) for records in seen]
    for records in seen:
        assert_sound(records, 32, is_whole=False)
    assert sum(numbers) > 4
    with capsys.disabled():
        print(
            f"\n    vLLM, {name}: followed {len(seen)} times from the middle, {sum(numbers)} ends", flush=True
        )


def test_a_row_that_was_scheduled_before_its_request_stopped_is_dead(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = tmp_path / "steps.jsonl"
    with vllm_server(model, tmp_path, str(stream), command=ASYNC) as server:
        whole_ones = server.answers([one for one in requests(12, 40) if not one.temperature])
        stopped = server.answers(
            replace(one.asked, name=f"stops-{n}", stops_at=one.outputs[0][2:3])
            for n, one in enumerate(whole_ones)
        )
        # One more, or the server may be ended with the last dead row under way.
        last = server.answer(Asked("last", (5, 6, 7), 3))
    assert {one.reasons for one in stopped} == {("stop",)}
    trace = whole(stream)
    num_tokens = assert_told([*whole_ones, *stopped, last], trace.records)
    assert_sound(trace.records, trace.header.block_size)
    dead = sum(step.tokens.dead for step in steps_of(trace.records))
    assert 0 < dead <= len(stopped)
    told(capsys, f"asynchronous, {len(stopped)} stop, {dead} dead rows", list(trace.records), num_tokens)


def test_each_rank_of_a_data_parallel_server_is_followed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run" / "s"
    with vllm_server(model, tmp_path, f"unix:{place}", "--data-parallel-size", "2") as server:
        first, second = ranks_beside(place).values()
        with following(f"unix:{first}") as one, following(f"unix:{second}") as other:
            answers = server.answers(requests())
            one.wait(lambda: not (one.state.slots or other.state.slots))
            provenances = [source.state.provenance for source in (one, other)]
    assert one.num_finished and other.num_finished
    assert [p.engine for p in provenances if p] == [f"vLLM 0.32.0, data-parallel rank {n}" for n in (0, 1)]
    assert [p.why_absent("ranks") for p in provenances if p] == [
        f"rank 1 at unix:{second}",
        f"rank 0 at unix:{first}",
    ]
    num_tokens = assert_told(answers, one.records, other.records)
    for records in (one.records, other.records):
        assert_sound(records, 128)
    told(capsys, "data-parallel, both ranks", one.records + other.records, num_tokens)
