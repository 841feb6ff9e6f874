"""A vLLM server seen by its metrics: what is counted, what is not told, and prompts sent from here."""

from __future__ import annotations

import json
import re

import pytest
from fake_server import DATA, FakeServer, fake_server
from following import following

from engine.attach.metrics_text import NotMetrics, Samples, quantile
from engine.attach.vllm_figures import PLAIN, TIMES, scrape_of
from engine.live.commands import PromptRequest, Submit
from engine.stream.records import UNKNOWN_TOKEN

BUSY = (DATA / "vllm_metrics_busy.txt").read_text()


def with_values(text: str, **values: float) -> str:
    """The metrics with other values; of one without labels in its name, all samples."""
    for name, value in values.items():
        text, times = re.subn(rf"^(vllm:{name}\{{[^}}]*\}}) \S+$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert times, name
    return text


def test_a_recorded_scrape_of_a_busy_server_is_read_as_it_stands() -> None:
    scrape = scrape_of(Samples(BUSY))
    assert (scrape.num_running, scrape.num_waiting) == (3, 2)
    assert scrape.figures["num_requests_waiting_by_reason capacity"] == 2
    assert scrape.figures["num_requests_waiting_by_reason deferred"] == 0
    assert scrape.figures["kv_cache_usage_perc"] == pytest.approx(3 / 181)
    assert (scrape.num_steps, scrape.num_tokens) == (7, 46)
    assert (scrape.num_prompt, scrape.num_output) == (27, 19)
    assert (scrape.block_size, scrape.num_blocks) == (128, 182)
    assert scrape.figures["num_preemptions_total"] == scrape.figures["prefix_cache_hits_total"] == 0
    assert 0 < scrape.figures["inter_token_latency_seconds p50"] < 1
    assert scrape.missing == ()


@pytest.mark.parametrize("name", [*PLAIN, *TIMES, "request_success_total", "iteration_tokens_total"])
def test_a_renamed_metric_is_named_as_missing_and_never_shown_as_zero(name: str) -> None:
    text = re.sub(rf"vllm:{name}(?=[ {{_])", f"vllm:other_{name}", BUSY)
    scrape = scrape_of(Samples(text))
    assert f"vllm:{name}" in scrape.missing
    assert not any(key.partition(" ")[0] == name for key in scrape.figures)
    if name == "iteration_tokens_total":
        assert scrape.num_steps is None and "steps" not in scrape.figures


@pytest.mark.parametrize("text", ["what is this?", '{"json": 1}', "a b\n"])
def test_a_text_that_is_no_metrics_is_said_to_be_none(text: str) -> None:
    with pytest.raises(NotMetrics):
        Samples(text)


def test_quantiles_are_interpolated_in_their_bucket_and_never_beyond_what_is_known() -> None:
    buckets = [(1.0, 0.0), (2.0, 10.0), (4.0, 20.0), (float("inf"), 20.0)]
    assert quantile(buckets, 0.25) == pytest.approx(1.5) and quantile(buckets, 0.5) == pytest.approx(2.0)
    assert quantile(buckets, 0.75) == pytest.approx(3.0)
    assert quantile([(1.0, 0.0), (float("inf"), 5.0)], 0.5) == 1.0
    assert quantile([], 0.5) is None and quantile([(1.0, 0.0), (float("inf"), 0.0)], 0.5) is None


class Metrics:
    """What `/metrics` says next: the last of `texts` stays."""

    def __init__(self, server: FakeServer, *texts: str) -> None:
        self.texts = list(texts)
        self.num_asked = 0
        server.answers["/metrics"] = self.answer
        server.json("/v1/models", {"data": [{"id": "/models/small\x1b[31m", "max_model_len": 512}]})

    def answer(self, _: bytes) -> bytes:
        self.num_asked += 1
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return text.encode()


def test_steps_are_counted_and_one_alone_has_its_exact_width() -> None:
    one_more = with_values(BUSY, iteration_tokens_total_count=8, iteration_tokens_total_sum=58)
    one_more = with_values(one_more, generation_tokens_total=21)
    five_more = with_values(one_more, iteration_tokens_total_count=13, iteration_tokens_total_sum=80)
    with fake_server() as server:
        Metrics(server, BUSY, BUSY, BUSY, one_more, five_more)
        with following(server.url) as one:
            one.wait(lambda: len(one.steps) == 2)
            state, (first, second) = one.state, one.steps
    assert state.provenance is not None and state.provenance.engine.startswith("vLLM")
    assert state.model is not None and state.model.name == "small\ufffd[31m", "a name gives no orders"
    assert state.config.max_model_len == 512 and state.config.block_size == 128
    assert first.shape == (1, 12) and (first.tokens.prompt, first.tokens.decode) == (10, 2)
    assert first.waiting_count == 2 and first.num_blocks == 182 and first.num_blocks - first.free_blocks == 3
    assert first.missed == 0 and second.missed == 4 and second.step == first.step + 5
    assert second.shape == (1, 0), "the width of one of five steps is not known"
    assert dict(second.events.figures)["steps"] == 13
    assert {what for what, _, _ in server.asked if what.startswith("POST")} == set()


def test_prompts_sent_from_here_are_in_the_steps_that_made_their_tokens() -> None:
    def event(text: str, number: int, **more: object) -> bytes:
        choice = {"index": 0, "text": text, "token_ids": [100 + number], "finish_reason": None} | more
        usage = {"prompt_tokens": 4, "completion_tokens": number}
        return b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n"

    with fake_server() as server:
        later = with_values(BUSY, iteration_tokens_total_count=10, iteration_tokens_total_sum=60)
        metrics = Metrics(server, BUSY)
        sent: list[dict[str, object]] = []

        def answer(body: bytes) -> list[bytes]:
            sent.append(json.loads(body))
            metrics.texts = [later]
            return [event(" one", 1), event(" two", 2), event(" three", 3, finish_reason="length")]

        server.answers["/v1/completions"] = answer
        with following(server.url) as one:
            one.commands.put(Submit((PromptRequest(prompt="Count", max_tokens=3),)))
            one.wait(lambda: one.num_finished == 1)
            ledger, steps = one.ledger, one.steps
    story = next(iter(ledger.stories.values()))
    assert ledger.output_text(story) == " one two three" and story.output_token_ids == [101, 102, 103]
    assert story.finish is not None and story.finish.reason == "length"
    assert len(story.request.prompt_token_ids) == 4
    assert [segment.kv_len for step in steps for segment in step.segments] == [4, 5, 6]
    assert len(steps) == 3 and {"steps", "times"} <= set(steps[0].inferred)
    assert set(steps[0].segments[0].token_ids) == {UNKNOWN_TOKEN}
    assert not {"logprobs", "top_logprobs"} & set(sent[0]), "asked for, they cost the server a compilation"
    assert sent[0]["model"] and sent[0]["prompt"] == "Count" and sent[0]["max_tokens"] == 3
