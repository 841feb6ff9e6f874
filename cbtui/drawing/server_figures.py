"""An observed server's own figures in lines: what its metrics say, and what they do not tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from cbtui.looks.pieces import Line, join
from cbtui.looks.tokens import prose
from cbtui.telling.words import percent, rate, seconds

Figures = Mapping[str, float | None]

#: Histograms of waiting times, by what people call them.
_TIMES = (
    ("TTFT", "time_to_first_token_seconds"),
    ("ITL", "inter_token_latency_seconds"),
    ("queue", "request_queue_time_seconds"),
    ("prefill", "request_prefill_time_seconds"),
    ("decode", "request_decode_time_seconds"),
    ("E2E", "e2e_request_latency_seconds"),
)
_BY_REASON, _FINISHED = "num_requests_waiting_by_reason ", "request_success_total "


def is_told_in_figures(figures: Figures) -> bool:
    """Whether a server tells by its figures alone how it stands (vLLM's metrics)."""
    return "num_requests_running" in figures


def server_lines(figures: Figures) -> list[Line]:
    """The figures, the most telling first; one that is not told is said to be not told."""
    reasons = {name: value for name, value in _apart(figures, _BY_REASON).items() if value}
    ends = {name: value for name, value in _apart(figures, _FINISHED).items() if value}
    waiting = _count(figures.get("num_requests_waiting"))
    lines = [
        join(
            (
                _one("tok/s", rate(figures.get("output_tokens_per_s"))),
                _one("steps/s", rate(figures.get("steps_per_s"))),
                _one("KV", _percent(figures.get("kv_cache_usage_perc"))),
            )
        ),
        join(
            (
                _one("running", _count(figures.get("num_requests_running"))),
                _one("waiting", f"{waiting} ({_listed(reasons)})" if reasons else waiting),
            )
        ),
        _one("prefix hits", _of(figures, "prefix_cache_hits_total", "prefix_cache_queries_total")),
        join(
            (
                _one("steps", _count(figures.get("steps"))),
                _one("preemptions", _count(figures.get("num_preemptions_total"))),
            )
        ),
        join(
            (
                _one("tokens: prompt", _count(figures.get("prompt_tokens_total"))),
                _one("output", _count(figures.get("generation_tokens_total"))),
            )
        ),
    ]
    for pair in zip(_TIMES[::2], _TIMES[1::2], strict=True):
        lines.append(join((_time(figures, *one) for one in pair), "   "))
    lines.append((("the p50 / p95 of all its requests so far", "dim"),))
    if ends:
        lines.insert(5, _one("ended", _listed(ends)))
    return [((" ", ""), *line) for line in lines]


def llama_line(figures: Figures, cells: int) -> Line:
    """The server's own counts since its start, beside what was seen of it; empty: it tells none."""
    counted = (("steps", "n_decode_total"), ("output tokens", "tokens_predicted_total"))
    told = [(figures.get(metric), name) for name, metric in counted]
    words = ", ".join(f"{value:,.0f} {name}" for value, name in told if value is not None)
    if not words:
        return ()
    scopes = (" the server since its start: ", " server since start: ", " server: ")
    scope = next((one for one in scopes if len(one) + len(words) <= cells), scopes[-1])
    return ((scope, "dim"), (words, "strong"))


def _apart(figures: Figures, prefix: str) -> dict[str, float]:
    return {
        prose(name.removeprefix(prefix)): value
        for name, value in figures.items()
        if name.startswith(prefix) and value is not None
    }


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in values.items())


def _one(name: str, value: str) -> Line:
    return ((f"{name} ", "dim"), (value, "dim" if value == NOT_TOLD else "strong"))


NOT_TOLD = "not told"


def _count(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return NOT_TOLD if value is None else percent(value)


def _of(figures: Figures, part: str, whole: str) -> str:
    hits, asked = figures.get(part), figures.get(whole)
    return NOT_TOLD if hits is None or asked is None else f"{hits:,.0f} of {asked:,.0f} tokens"


def _time(figures: Figures, name: str, metric: str) -> Line:
    """`TTFT 0.4 s / 2.2 s`: median and 95th percentile."""
    p50, p95 = figures.get(f"{metric} p50"), figures.get(f"{metric} p95")
    both = f"{seconds(p50)} / {seconds(p95)}"
    return ((f"{name.ljust(7)} ", "dim"), (both.ljust(15), "strong"))
