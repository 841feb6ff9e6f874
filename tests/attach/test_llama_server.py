"""Following llama.cpp's real server: steps, contexts and phases are what it says itself at the end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
import small_gguf
from following import Following, LlamaServer, following, llama_server

from engine.attach.metrics_text import Samples
from engine.live.commands import Cancel, PromptRequest, Submit
from engine.stream.metrics import Metrics
from engine.stream.records import UNKNOWN_TOKEN, StepRecord
from engine.stream.trace_files import TraceRecorder, header_of, read_trace

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gguf.write(tmp_path_factory.mktemp("gguf") / "small.gguf")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[LlamaServer]:
    with llama_server(model) as server:
        yield server


def counters(server: LlamaServer) -> dict[str, float]:
    samples = Samples(httpx2.get(f"{server.url}/metrics").text)
    names = ("n_decode_total", "prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")
    return {name: samples.sum(f"llamacpp:{name}") or 0.0 for name in names}


def since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in before}


def check_contexts(steps: list[StepRecord]) -> None:
    """Every request is fed at its next position, its prompt before anything else, and sees what was fed."""
    ends: dict[str, int] = {}
    decoding: set[str] = set()
    for step in steps:
        assert step.shape == (1, sum(segment.q_len for segment in step.segments)) and step.shape[1] > 0
        assert step.num_keys == sum(segment.kv_len for segment in step.segments)
        assert len(step.slots) <= step.max_num_seqs == 3
        for segment in step.segments:
            name = segment.request_id
            start = ends.get(name, segment.num_cached)
            assert (segment.position, segment.kv_len) == (start, start + segment.q_len)
            assert segment.num_cached == segment.position and len(segment.token_ids) == segment.q_len
            assert (segment.kind == "decode") >= (name in decoding), "a generating slot is no prompt"
            if segment.sampled is not None:
                decoding.add(name)
            ends[name] = segment.position + segment.q_len


def test_prompts_sent_from_here_are_followed_token_by_token(server: LlamaServer) -> None:
    prompts = [("The capital of France is", 6), ("Today", 25), ("In machine learning,", 70)]
    prompts += [("Once upon a time", 15), ("Quantum computing", 40), ("The history", 20)]
    asked = [PromptRequest(prompt=text, max_tokens=most, ignore_eos=True) for text, most in prompts]
    with following(server.url) as one:
        assert one.state.is_attached and one.state.config.max_num_seqs == 3
        before = counters(server)
        one.commands.put(Submit(tuple(asked)))
        one.wait(lambda: one.num_finished == 6)
        said = since(before, counters(server))
        one.wait(lambda: one.state.status == "idle")
        steps, ledger = one.steps, one.ledger
        state = one.state
    check_contexts(steps)
    unseen = 0
    for (text, most), name in zip(prompts, sorted(ledger.stories), strict=True):
        story = ledger[name]
        # Its tokenizer writes a space as a mark, which no piece of the small vocabulary undoes.
        assert ledger.decode(story.request.prompt_token_ids).replace("▁", " ") == "<s>" + text
        assert story.finish is not None and story.finish.reason == "length"
        assert story.finish.num_output_tokens == most
        if story.finish.slot is None:
            unseen += 1  # it came and went between two looks: a machine may be that busy with other things
            continue
        assert len(story.output_token_ids) == most
        # Bytes at the end that are no whole character are never sent; this model writes any bytes.
        told = [token for token in story.output_token_ids if token != UNKNOWN_TOKEN]
        assert most - 8 <= len(told)
        assert story.ttft_s is not None and story.ttft_s > 0
    assert unseen <= 1
    if not unseen:
        assert sum(step.tokens.prompt for step in steps) == said["prompt_tokens_total"]
    assert said["tokens_predicted_total"] == sum(most for _, most in prompts)
    # Steps that passed between two looks are rebuilt; those with nobody in sight afterwards may be missed.
    told = len(steps) + sum(step.missed for step in steps)
    assert told <= said["n_decode_total"] <= told + 3 or unseen
    assert steps[-1].step == told
    assert state.provenance is not None and "llama.cpp" in state.provenance.engine
    assert state.provenance.why_inferred("mask") and state.provenance.why_absent("blocks")


def test_other_clients_requests_are_followed_by_their_lengths(server: LlamaServer) -> None:
    def ask(most: int) -> tuple[int, int]:
        body = {"prompt": "x" * (most // 2), "max_tokens": most, "ignore_eos": True, "cache_prompt": False}
        usage = httpx2.post(f"{server.url}/v1/completions", json=body, timeout=60).json()["usage"]
        return usage["prompt_tokens"], usage["completion_tokens"]

    with following(server.url) as one, ThreadPoolExecutor() as pool:
        usages = sorted(pool.map(ask, (45, 60, 75, 90, 50)))
        one.wait(lambda: one.num_finished == 5)
        steps, ledger = one.steps, one.ledger
    check_contexts(steps)
    stories = list(ledger.stories.values())
    assert sorted(len(story.request.prompt_token_ids) for story in stories) == [
        prompt for prompt, _ in usages
    ]
    for story in stories:
        assert set(story.request.prompt_token_ids) | set(story.output_token_ids) == {UNKNOWN_TOKEN}
        assert story.finish is not None and story.finish.reason == "length"
        assert (len(story.request.prompt_token_ids), story.finish.num_output_tokens) in usages
    assert any(step.waiting_count for step in steps), "two of five had to wait"
    metrics = Metrics(ledger)
    for record in steps:
        metrics.apply(record)
    assert metrics.snapshot().slot_occupancy > 0.5


def test_what_was_sent_from_here_can_be_taken_back_and_nothing_else(server: LlamaServer) -> None:
    with following(server.url) as one:
        one.commands.put(Submit((PromptRequest(prompt="long", max_tokens=900, ignore_eos=True),)))
        one.wait(lambda: len(one.steps) > 5)
        name = one.steps[-1].slots[0].request_id
        one.commands.put(Cancel("nobody"))
        one.wait(lambda: one.state.rejection)
        one.commands.put(Cancel(name))
        one.wait(lambda: one.num_finished)
        finish = one.ledger[name].finish
        assert finish is not None and finish.reason == "abort" and 5 <= finish.num_output_tokens < 900
        one.wait(lambda: one.state.status == "idle")
        one.commands.put(Submit((PromptRequest(prompt="x" * 2000, max_tokens=3),)))
        one.wait(lambda: one.num_finished == 2)
        refused = list(one.ledger.stories.values())[-1].finish
        assert refused is not None and refused.reason == "error" and "400" in refused.error


def test_a_server_that_goes_and_comes_back(model: Path) -> None:
    first = LlamaServer(model, "--no-metrics")
    port = first.url.rpartition(":")[2]
    with following(first.url) as one:
        assert one.state.provenance is not None and one.state.provenance.why_absent("waiting")
        one.commands.put(Submit((PromptRequest(prompt="long", max_tokens=900, ignore_eos=True),)))
        one.wait(lambda: len(one.steps) > 3)
        first.close()
        one.wait(lambda: one.state.failure)
        assert one.state.failure is not None and one.state.failure.retry_s is not None
        seen = len(one.steps)
        with llama_server(model, "--port", port):
            one.wait(lambda: one.state.failure is None)
            one.wait(lambda: one.num_finished == 1)
            assert next(iter(one.ledger.stories.values())).finish.reason == "error"  # type: ignore[union-attr]
            one.commands.put(Submit((PromptRequest(prompt="again", max_tokens=5, ignore_eos=True),)))
            one.wait(lambda: one.num_finished == 2)
            numbers = [step.step for step in one.steps]
            assert len(numbers) > seen and numbers == sorted(set(numbers))


def test_a_key_is_wanted_taken_and_never_written_down(model: Path, tmp_path: Path) -> None:
    with llama_server(model, "--api-key", "hunter2") as server:
        with following(server.url) as one:
            assert one.state.failure is not None and "CBTUI_API_KEY" in one.state.failure.message
        with following(server.url, "hunter2") as one:
            one.commands.put(Submit((PromptRequest(prompt="Hello", max_tokens=4, ignore_eos=True),)))
            one.wait(lambda: one.num_finished == 1)
            trace = recorded(one, tmp_path / "trace.jsonl")
            assert "hunter2" not in repr(one.state)
    assert b"hunter2" not in trace.read_bytes()
    read = read_trace(trace)
    assert (
        read.header.provenance == one.state.provenance
        and list(read.records) == one.records
        and not read.error
    )


def recorded(one: Following, path: Path) -> Path:
    recorder = TraceRecorder(path)
    assert one.state.model is not None
    recorder.begin(header_of(one.state.model, one.state.config, one.state.provenance))
    for record in one.records:
        recorder.write(record)
    recorder.close()
    return path


def test_a_server_that_sleeps_is_neither_woken_nor_kept_awake(model: Path) -> None:
    with llama_server(model, "--sleep-idle-s", "1") as server:

        def is_asleep() -> bool:
            return bool(httpx2.get(f"{server.url}/props").json()["is_sleeping"])

        def ask() -> None:
            body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
            assert httpx2.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200

        with following(server.url) as one:
            one.wait(is_asleep)
            ask()
            one.wait(lambda: one.num_finished == 1)
            one.wait(is_asleep)
        with following(server.url) as one:
            assert is_asleep() and one.state.config.max_num_seqs == 3
            one.commands.put(Submit((PromptRequest(prompt="Hello", max_tokens=5, ignore_eos=True),)))
            one.wait(lambda: one.num_finished == 1)
            finish = next(iter(one.ledger.stories.values())).finish
            assert finish is not None and (finish.reason, finish.num_output_tokens) == ("length", 5)
            one.wait(is_asleep)


def test_a_full_context_that_is_shifted_is_told_as_that(model: Path) -> None:
    with llama_server(model, "--shift", "--ctx", "256") as server, following(server.url) as one:
        body = {"prompt": "hello", "max_tokens": 400, "ignore_eos": True}
        assert httpx2.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
        one.wait(lambda: one.num_finished == 1)
        steps = one.steps
    assert max(segment.kv_len for step in steps for segment in step.segments) <= 256
    (finish,) = (finish for record in one.records for finish in record.events.finished)
    assert finish.num_output_tokens == 400
    said = [error for record in one.records for error in record.events.errors]
    assert len(said) >= 1 and all("context was full" in error for error in said)
    assert sum(step.tokens.prompt for step in steps) == 6


def test_a_client_that_hangs_up_is_told_from_an_answer_that_ended(server: LlamaServer) -> None:
    body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
    with following(server.url) as one:
        with httpx2.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
            pieces = answer.iter_bytes()
            next(pieces)
            one.wait(lambda: len(one.steps) > 5)
            next(pieces)
        one.wait(lambda: one.num_finished == 1)
        (finish,) = (finish for record in one.records for finish in record.events.finished)
    assert finish.reason == "abort" and 5 <= finish.num_output_tokens < 900


def test_embeddings_are_steps_without_output(model: Path) -> None:
    with llama_server(model, "--pooling", "--slots", "2") as server, following(server.url) as one:
        before = counters(server)
        body = {"input": "hello world " * 16}
        assert httpx2.post(f"{server.url}/v1/embeddings", json=body, timeout=60).status_code == 200
        one.wait(lambda: one.num_finished == 1)
        said = since(before, counters(server))
        steps = one.steps
    assert said["tokens_predicted_total"] == 0
    ends = [finish for record in one.records for finish in record.events.finished]
    assert [finish.num_output_tokens for finish in ends] == [0] * len(ends)
    assert sum(step.tokens.prompt for step in steps) == said["prompt_tokens_total"]
