"""vLLM's metrics as figures for people: which of them are read, and what is derived from them. Pure.

A metric that is not there is not there: it is named as missing, and no figure is made of it.
"""

from __future__ import annotations

import msgspec

from engine.attach.metrics_text import Samples, quantile
from engine.attach.seen import Width

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
#: Those of them that are shares.
SHARES = ("kv_cache_usage_perc",)
BY_REASON = "num_requests_waiting_by_reason"
FINISHED, FINISHED_LABEL = "request_success_total", "finished_reason"
STEPS = "iteration_tokens_total"
FIRSTS = "time_to_first_token_seconds"
#: Histograms of which the median and the 95th percentile are given.
TIMES = (
    FIRSTS,
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
        num_steps: steps so far.
        num_tokens: prompt tokens fed and output tokens made in all of them together.
        num_output, num_firsts: output tokens so far, and those of them that were a request's first.
        num_running, num_waiting: now. Of all numbers, None: it is not told.
        block_size, num_blocks: of the KV cache; 0: not told.
        missing: metrics that are not there.
    """

    figures: dict[str, float]
    num_steps: int | None
    num_tokens: int | None
    num_output: int | None
    num_firsts: int | None
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
        # Of several engines behind one server, shares do not add up.
        value = (samples.mean if name in SHARES else samples.sum)(PREFIX + name)
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
        num_output=_whole(figures.get("generation_tokens_total")),
        num_firsts=_whole(samples.sum(f"{PREFIX}{FIRSTS}_count")),
        num_running=_whole(figures.get("num_requests_running")),
        num_waiting=_whole(figures.get("num_requests_waiting")),
        block_size=_number(labels.get("block_size")),
        num_blocks=_number(labels.get("num_gpu_blocks")),
        missing=tuple(PREFIX + name for name in missing),
    )


def rise(before: int | None, now: int | None) -> int | None:
    """How much a counter rose; None: it is not told, or began anew."""
    return None if before is None or now is None or now < before else now - before


def width_between(before: Scrape, now: Scrape) -> Width | None:
    """The width of a step that passed alone between two scrapes; None: it is not told.

    vLLM counts the tokens a step made, not those it fed to make them: a prompt's first token came of the
    prompt itself. A prompt fed in pieces counts with its last one.
    """
    tokens, output, firsts = (
        rise(getattr(before, name), getattr(now, name)) for name in ("num_tokens", "num_output", "num_firsts")
    )
    if tokens is None or output is None or firsts is None or not 0 <= output - firsts <= tokens - firsts:
        return None
    return Width(tokens - firsts, output - firsts)


def sure_to_run(before: Scrape | None, now: Scrape) -> int | None:
    """Requests that ran all the time between two scrapes, as far as these say; None: they do not say."""
    if before is None or before.num_running is None or now.num_running is None:
        return None
    return min(before.num_running, now.num_running)


def _whole(value: float | None) -> int | None:
    return None if value is None else max(0, int(value))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 12 else 0
