"""What following llama.cpp's real server costs that server: its output tokens/s, followed and not, in turns.

Its model has random weights (100 MB, a step as long as one of the default model's in four bits): what a
step computes is real, what it says is not looked at.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx2

from engine.live.commands import PromptRequest
from engine.workload import tutorial_workload
from tests.attach import small_gguf
from tests.attach.following import LlamaServer, llama_server
from tests.benchmarks.children import Seen, followed
from tests.benchmarks.report import Line, Report, in_turns
from tests.benchmarks.workload import SLOTS

#: Output tokens/s of a followed server / of one that nobody follows, at least.
LEAST = 0.95
#: Outputs of the run before the first round, beside the others'.
WARM_SCALE = 0.1


@dataclass(frozen=True)
class Run:
    """One run of the tutorial's six requests, and what the follower saw of it if there was one."""

    tokens_per_s: float
    seen: Seen | None = None


def llama_cost(report: Report, rounds: int, scale: float, threads: tuple[int, ...]) -> None:
    """A server for each number of threads, with three slots."""
    with tempfile.TemporaryDirectory() as folder:
        model = small_gguf.write(Path(folder) / "small.gguf")
        for number in threads:
            with llama_server(model, "--slots", str(SLOTS), "--threads", str(number)) as server:
                _cost_lines(report, server, rounds, scale, number)


def _cost_lines(report: Report, server: LlamaServer, rounds: int, scale: float, threads: int) -> None:
    def alone() -> Run:
        return Run(_tokens_per_s(server.url, scale))

    def with_follower() -> Run:
        with followed(server.url) as seen:
            before = seen()
            return Run(_tokens_per_s(server.url, scale), seen().since(before))

    _tokens_per_s(server.url, WARM_SCALE * scale)
    runs = in_turns({"alone": alone, "followed": with_follower}, rounds)
    pairs = list(zip(runs["followed"], runs["alone"], strict=True))
    ratio = statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in pairs)
    speeds = [statistics.median(one.tokens_per_s for one in runs[name]) for name in ("followed", "alone")]
    share = statistics.median(one.seen.cpu_s / max(1, one.seen.steps) for one in runs["followed"] if one.seen)
    note = (
        f"{speeds[0]:.1f} / {speeds[1]:.1f} tokens/s; the follower itself, beside it: "
        f"{1e3 * share:.1f} ms of processor time a step"
    )
    what = f"llama.cpp's server followed / alone, tokens/s, {threads} threads"
    report.add(Line(what, ratio, target=LEAST, note=note))


def _tokens_per_s(url: str, scale: float) -> float:
    """The six requests at once, by a client of the server's OpenAI route.

    Raises:
        RuntimeError: it answered with another number of tokens.
    """
    work = tutorial_workload()
    with httpx2.Client(timeout=600) as client, ThreadPoolExecutor(len(work)) as pool:

        def ask(request: PromptRequest) -> int:
            body = {
                "prompt": request.prompt,
                "max_tokens": max(1, round(request.max_tokens * scale)),
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
            answer = client.post(f"{url}/v1/completions", json=body)
            answer.raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        begun = time.perf_counter()
        counts = list(pool.map(ask, work))
        elapsed = time.perf_counter() - begun
    wanted = [max(1, round(request.max_tokens * scale)) for request in work]
    if counts != wanted:
        raise RuntimeError(f"the server gave {counts} tokens instead of {wanted}")
    return sum(counts) / elapsed
