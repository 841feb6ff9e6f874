"""vLLM's metrics as figures for people: which of them are read, and what is derived from them. Pure.

A metric that is not there is not there: it is named as missing, and no figure is made of it.
"""

from __future__ import annotations

import msgspec

from engine.attach.metrics_text import Samples, quantile

PREFIX = "vllm:"
#: Metrics that are passed on as they are, under their own names.
PLAIN = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
    "prompt_tokens_total",
    "generation_tokens_total",
)
BY_REASON = "num_requests_waiting_by_reason"
FINISHED, FINISHED_LABEL = "request_success_total", "finished_reason"
STEPS = "iteration_tokens_total"
#: Histograms of which the median and the 95th percentile are given.
TIMES = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "e2e_request_latency_seconds",
)
CACHE = "cache_config_info"


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """What one scrape says.

    Attributes:
        figures: by name; those of `PLAIN`, and derived ones.
        num_steps, num_tokens: steps so far and the tokens of all of them together; None: not told.
        num_prompt, num_output: prompt and output tokens so far; None: not told.
        num_running, num_waiting: None: not told.
        block_size, num_blocks: of the KV cache; 0: not told.
        missing: metrics that are not there.
    """

    figures: dict[str, float]
    num_steps: int | None
    num_tokens: int | None
    num_prompt: int | None
    num_output: int | None
    num_running: int | None
    num_waiting: int | None
    block_size: int
    num_blocks: int
    missing: tuple[str, ...]


def scrape_of(samples: Samples) -> Scrape:
    """What is read of a scrape."""
    figures: dict[str, float] = {}
    missing: list[str] = []
    for name in PLAIN:
        value = samples.sum(PREFIX + name)
        if value is None:
            missing.append(name)
        else:
            figures[name] = value
    for name, label in ((BY_REASON, "reason"), (FINISHED, FINISHED_LABEL)):
        apart = samples.by(PREFIX + name, label)
        if not apart:
            missing.append(name)
        figures |= {f"{name} {key}": value for key, value in apart.items()}
    steps, tokens = samples.sum(f"{PREFIX}{STEPS}_count"), samples.sum(f"{PREFIX}{STEPS}_sum")
    if steps is None or tokens is None:
        missing.append(STEPS)
        steps = tokens = None
    else:
        figures["steps"] = steps
    for name in TIMES:
        buckets = samples.buckets(PREFIX + name)
        if not buckets:
            missing.append(name)
        for share, word in ((0.5, "p50"), (0.95, "p95")):
            if (value := quantile(buckets, share)) is not None:
                figures[f"{name} {word}"] = value
    labels = samples.labels(PREFIX + CACHE)
    if not labels:
        missing.append(CACHE)
    return Scrape(
        figures=figures,
        num_steps=_whole(steps),
        num_tokens=_whole(tokens),
        num_prompt=_whole(figures.get("prompt_tokens_total")),
        num_output=_whole(figures.get("generation_tokens_total")),
        num_running=_whole(figures.get("num_requests_running")),
        num_waiting=_whole(figures.get("num_requests_waiting")),
        block_size=_number(labels.get("block_size")),
        num_blocks=_number(labels.get("num_gpu_blocks")),
        missing=tuple(PREFIX + name for name in missing),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else max(0, int(value))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 12 else 0
