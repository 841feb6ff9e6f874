"""The totals under their names: what `prometheus_client` collects and writes.

Names, labels and units are vLLM's with `cbtui:` for `vllm:`, so that its dashboards and alerts need one
replacement; what vLLM has no name for is this program's own. Imported only where metrics are asked for:
`prometheus_client` is the extra `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.prometheus.totals import Distribution, Totals

PREFIX = "cbtui:"
#: `engine` tells several apart (those of `cbtui compare`); with one it is 0, as vLLM's.
LABELS = ("model_name", "engine")

_GAUGES: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("num_requests_running", "Requests in a slot.", lambda t: t.running),
    ("num_requests_waiting", "Requests that wait for a slot.", lambda t: t.waiting),
    ("kv_cache_usage_perc", "KV blocks in use; 1 means 100 percent.", lambda t: t.kv_cache_usage),
    ("num_slots", "Requests that may run at once (max_num_seqs).", lambda t: t.slots),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("prompt_tokens", "Prompt tokens fed for the first time.", lambda t: t.prompt_tokens),
    ("generation_tokens", "Tokens sampled.", lambda t: t.generation_tokens),
    ("num_preemptions", "Requests that had to give way.", lambda t: t.preemptions),
    ("prefix_cache_hits", "Tokens found in shared KV blocks.", lambda t: t.prefix_cache_hits),
    ("steps", "Forward passes.", lambda t: t.steps),
    ("engine_seconds", "Time of the steps, on the engine clock.", lambda t: t.engine_s),
    ("recomputed_tokens", "Token positions fed again after a preemption.", lambda t: t.recomputed_tokens),
    ("dead_tokens", "Token positions spent on finished requests.", lambda t: t.dead_tokens),
    ("padding_tokens", "Token positions that hold padding.", lambda t: t.padding_tokens),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[Totals], Distribution]], ...] = (
    ("time_to_first_token_seconds", "Arrival to first output token.", lambda t: t.first_token_s),
    ("inter_token_latency_seconds", "Between successive output tokens.", lambda t: t.between_tokens_s),
    ("request_time_per_output_token_seconds", "Mean of a request's gaps.", lambda t: t.per_token_s),
    ("e2e_request_latency_seconds", "Arrival to end.", lambda t: t.request_s),
    ("request_queue_time_seconds", "Arrival to first scheduled.", lambda t: t.queue_s),
    ("request_prompt_tokens", "Prompt tokens of a request.", lambda t: t.request_prompt_tokens),
    ("request_generation_tokens", "Output tokens of a request.", lambda t: t.request_generation_tokens),
    ("iteration_tokens_total", "Useful token positions of a step.", lambda t: t.step_tokens),
)


class EngineCollector(Collector):
    """Hands the totals of some engines to `prometheus_client`.

    Args:
        totals: what is to be read, by (model name, engine).
        lock: held while it is read.
    """

    def __init__(self, totals: Mapping[tuple[str, str], Totals], lock: Lock) -> None:
        self._totals = totals
        self._lock = lock

    def collect(self) -> list[Metric]:
        """Every figure of every engine, all as they are at one moment."""
        with self._lock:
            return list(self._families())

    def _families(self) -> Iterator[Metric]:
        totals = self._totals
        for name, about, number in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, about, labels=LABELS)
            for labels, one in totals.items():
                gauge.add_metric(labels, number(one))
            yield gauge
        for name, about, number in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, about, labels=LABELS)
            for labels, one in totals.items():
                counter.add_metric(labels, number(one))
            yield counter
        yield _finished(totals)
        for name, about, distribution in _HISTOGRAMS:
            histogram = HistogramMetricFamily(PREFIX + name, about, labels=LABELS)
            for labels, one in totals.items():
                values = distribution(one)
                buckets = [(_bound(bound), count) for bound, count in values.cumulative()]
                histogram.add_metric(labels, buckets, values.sum)
            yield histogram
        yield _how(totals)


def _finished(totals: Mapping[tuple[str, str], Totals]) -> Metric:
    """Requests that ended, by reason: stop, length, abort, error or ignored."""
    family = CounterMetricFamily(
        f"{PREFIX}request_success", "Requests that ended, by reason.", labels=(*LABELS, "finished_reason")
    )
    for labels, one in totals.items():
        for reason, count in one.finished.items():
            family.add_metric((*labels, reason), count)
    return family


def _how(totals: Mapping[tuple[str, str], Totals]) -> Metric:
    """Mode and policy, in the labels of a constant 1: so is text exported."""
    family = GaugeMetricFamily(
        f"{PREFIX}batching_info", "How requests are batched now.", labels=(*LABELS, "mode", "policy")
    )
    for labels, one in totals.items():
        family.add_metric((*labels, one.mode, one.policy), 1)
    return family


def _bound(bound: float) -> str:
    """A bucket's upper bound as the text format writes it."""
    return "+Inf" if bound == float("inf") else str(float(bound))
