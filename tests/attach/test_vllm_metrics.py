"""A vLLM server seen by its metrics: what is counted, what is not told, and prompts sent from here."""

from __future__ import annotations

import json
import math
import re
import threading

import pytest
from fake_server import DATA, FakeServer, fake_server
from following import following
from hypothesis import given
from hypothesis import strategies as st

from engine.attach.metrics_text import NotMetrics, Samples, quantile
from engine.attach.vllm_figures import PLAIN, TIMES, Scrape, scrape_of, width_between
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
    assert (scrape.num_output, scrape.num_firsts) == (19, 4)
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
    assert quantile([(float("inf"), 5.0)], 0.5) is None, "nothing is known of where they lie"


@given(st.lists(st.floats(), min_size=1, max_size=4), st.lists(st.floats(), max_size=4))
def test_any_numbers_are_read_without_a_fault(values: list[float], buckets: list[float]) -> None:
    lines = [f'vllm:num_requests_running{{engine="{n}"}} {value}' for n, value in enumerate(values)]
    lines += [
        f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {n}' for n, bound in enumerate(buckets)
    ]
    found = scrape_of(Samples("\n".join([*lines, ""])))
    assert all(math.isfinite(value) for value in found.figures.values())
    assert "vllm:num_requests_running" in found.missing or math.isfinite(
        found.figures["num_requests_running"]
    )


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
    # A prompt of 9 tokens, and what two others chose last: three tokens come of it, one of them a first one.
    one_more = with_values(one_more, generation_tokens_total=22, time_to_first_token_seconds_count=5)
    five_more = with_values(one_more, iteration_tokens_total_count=13, iteration_tokens_total_sum=80)
    with fake_server() as server:
        Metrics(server, BUSY, BUSY, BUSY, one_more, five_more)
        with following(server.url) as one:
            one.wait(lambda: len(one.steps) == 2)
            state, (first, second) = one.state, one.steps
    assert state.provenance is not None and state.provenance.engine.startswith("vLLM")
    assert state.model is not None and state.model.name == "small\ufffd[31m", "a name gives no orders"
    assert state.config.max_model_len == 512 and state.config.block_size == 128
    assert first.shape == (1, 11) and (first.tokens.prompt, first.tokens.decode) == (9, 2)
    assert first.inferred == ("requests",) and "tokens" in second.inferred
    assert first.waiting_count == 2
    assert (first.num_blocks, first.reserved_blocks, first.free_blocks) == (182, 1, 182 - 1 - 3)
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
    assert len(steps) == 3 and steps[0].inferred == ("requests", "tokens"), "three run, and one is known"
    assert set(steps[0].segments[0].token_ids) == {UNKNOWN_TOKEN}
    assert not {"logprobs", "top_logprobs"} & set(sent[0]), "asked for, they cost the server a compilation"
    assert sent[0]["model"] and sent[0]["prompt"] == "Count" and sent[0]["max_tokens"] == 3


def scraped(**values: float) -> Scrape:
    return scrape_of(Samples(with_values(BUSY, **values)))


def test_a_step_is_as_wide_as_what_it_fed_not_as_what_it_made() -> None:
    before = scraped()
    prompt_and_two = scraped(
        iteration_tokens_total_sum=46 + 9 + 3,
        generation_tokens_total=19 + 3,
        time_to_first_token_seconds_count=4 + 1,
    )
    assert width_between(before, prompt_and_two) == (11, 2)
    decodes = scraped(iteration_tokens_total_sum=46 + 3, generation_tokens_total=19 + 3)
    assert width_between(before, decodes) == (3, 3)
    assert width_between(prompt_and_two, before) is None, "started anew"
    for name in ("time_to_first_token_seconds_count", "generation_tokens_total"):
        text = BUSY.replace(f"vllm:{name}", "vllm:renamed")
        assert width_between(before, scrape_of(Samples(text))) is None


def test_of_two_engines_behind_one_server_counts_add_up_and_shares_do_not() -> None:
    first = scraped(kv_cache_usage_perc=0.5)
    second = with_values(BUSY, kv_cache_usage_perc=0.25).replace('engine="0"', 'engine="1"')
    lines = [line for line in second.splitlines() if not line.startswith("#")]
    both = scrape_of(Samples("\n".join([with_values(BUSY, kv_cache_usage_perc=0.5), *lines, ""])))
    assert both.figures["kv_cache_usage_perc"] == pytest.approx(0.375)
    assert both.num_running == 2 * (first.num_running or 0) and both.num_steps == 14


def test_a_server_that_others_use_is_at_work_though_nobody_of_it_is_known() -> None:
    with fake_server() as server:
        Metrics(server, BUSY)
        with following(server.url) as one:
            assert one.state.status == "running" and not one.state.slots
            server.answers["/metrics"] = with_values(
                BUSY, num_requests_running=0, num_requests_waiting=0
            ).encode()
            one.wait(lambda: one.state.status == "idle")


def test_a_server_that_was_started_anew_is_counted_anew() -> None:
    with fake_server() as server:
        five_more = with_values(BUSY, iteration_tokens_total_count=12)
        anew = with_values(BUSY, iteration_tokens_total_count=1, generation_tokens_total=2)
        then = with_values(anew, iteration_tokens_total_count=3, generation_tokens_total=5)
        metrics = Metrics(server, BUSY, BUSY, five_more)
        with following(server.url) as one:
            one.wait(lambda: len(one.steps) == 1)
            server.answers["/metrics"] = (500, b"")
            one.wait(lambda: one.state.failure is not None)
            metrics.texts = [anew]
            server.answers["/metrics"] = metrics.answer
            one.wait(lambda: one.state.failure is None)
            metrics.texts = [then]
            one.wait(lambda: len(one.steps) == 2)
            first, second = one.steps
            figures: dict[str, float | None] = {}
            for record in one.records:
                figures |= dict(record.events.figures)
    assert (first.step, second.step) == (5, 7), "two steps of the new one, and none of the difference"
    assert (figures["output_tokens_per_s"] or 0) >= 0


def test_a_prompt_that_waits_at_the_server_is_counted_once() -> None:
    with fake_server() as server:
        Metrics(server, with_values(BUSY, num_requests_waiting=2))
        hold = threading.Event()

        def answer(_: bytes) -> bytes:
            hold.wait(10)
            return b"data: [DONE]\n\n"

        server.answers["/v1/completions"] = answer
        with following(server.url) as one:
            one.commands.put(Submit((PromptRequest(prompt="Count", max_tokens=3),)))
            one.wait(lambda: one.state.arriving_count)
            assert (one.state.waiting_count, one.state.arriving_count) == (1, 1)
            hold.set()


def test_no_waiting_time_of_a_prompt_sent_from_here_is_below_zero() -> None:
    """A step may have begun before the prompt was sent, as far as the scrapes tell."""
    piece = {"choices": [{"index": 0, "text": "x", "token_ids": [5], "finish_reason": "length"}]}
    with fake_server() as server:
        Metrics(server, BUSY)
        server.answers["/v1/completions"] = [f"data: {json.dumps(piece)}\n\n".encode()]
        with following(server.url) as one:
            for number in range(1, 4):
                one.commands.put(Submit((PromptRequest(prompt="Count", max_tokens=1),)))
                one.wait(lambda number=number: one.num_finished == number)
            stories = one.ledger.stories.values()
    for story in stories:
        assert story.queue_s is not None and story.queue_s >= 0
        assert story.ttft_s is not None and story.ttft_s >= 0
