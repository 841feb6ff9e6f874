"""The parts of the benchmark; each adds its lines to the report."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from msgspec import structs
from transformers import PreTrainedModel

from engine.step.geometry import ArenaShape
from engine.torch_runner import TorchRunner
from tests.benchmarks.ours import (
    HOME_TOKENS,
    Products,
    decode_plan,
    open_arena,
    run_jobs,
    scattered,
    started,
)
from tests.benchmarks.peers import (
    Running,
    generate_in_waves,
    transformers_server,
    tutorial_loop,
    tutorial_step,
)
from tests.benchmarks.report import Line, Report, interleaved, median_ratio
from tests.benchmarks.workload import jobs, plain_model


@dataclass(frozen=True)
class Effort:
    """How much to run: rounds of everything, outputs scaled, which numbers of threads."""

    rounds: int
    scale: float
    threads: tuple[int, ...]


def peers(report: Report, effort: Effort) -> None:
    """The tutorial's workload against transformers and the tutorial's loop."""
    work = jobs(effort.scale)
    warm_up = jobs(0.01)
    ours, ours_bf16, plain = started("float32"), started("bfloat16"), plain_model()
    outputs: dict[str, list[list[int]]] = {}
    with transformers_server(plain_model()) as server:
        contenders: dict[str, Callable[..., list[list[int]]]] = {
            "generate": partial(generate_in_waves, plain),
            "tutorial": partial(tutorial_loop, plain),
            "server": server.run,
            "ours": lambda work: run_jobs(ours, work)[0],
            "ours bfloat16": lambda work: run_jobs(ours_bf16, work)[0],
        }

        def run(name: str) -> None:
            outputs[name] = contenders[name](work)

        for threads in effort.threads:
            torch.set_num_threads(threads)
            for contender in contenders.values():
                contender(warm_up)
            times = interleaved({name: partial(run, name) for name in contenders}, effort.rounds)
            _peer_lines(report, times, threads, sum(job.num_tokens for job in work))
    same = {
        name: sum(a == b for a, b in zip(outputs[name], outputs["ours"], strict=True)) for name in outputs
    }
    for name, count in same.items():
        if name != "ours":
            report.add(Line(f"outputs of {name} that equal ours", count, f"of {len(work)}"))


def _peer_lines(report: Report, times: dict[str, list[float]], threads: int, num_tokens: int) -> None:
    both = threads > 1
    targets = {
        "generate": 4.0 if both else 3.0,
        "tutorial": 2.0 if both else 1.7,
        "server": 2.0 if both else 1.6,
    }
    words = {
        "generate": "transformers generate, static waves",
        "tutorial": "the tutorial's loop",
        "server": "transformers continuous batching",
    }
    for name, target in targets.items():
        ratio = median_ratio(times, name, "ours")
        note = f"{num_tokens / statistics.median(times[name]):.1f} tokens/s"
        report.add(Line(f"{words[name]} / ours, float32, {threads} threads", ratio, target=target, note=note))
    ratio = median_ratio(times, "tutorial", "ours bfloat16")
    report.add(
        Line(
            f"the tutorial's loop float32 / ours bfloat16, {threads} threads",
            ratio,
            target=3.0 if both else None,
        )
    )
    for name in ("ours", "ours bfloat16"):
        speed = num_tokens / statistics.median(times[name])
        report.add(Line(f"{name}, {threads} threads", speed, "tokens/s"))


def step(report: Report, effort: Effort) -> None:
    """One decode step: against its matrix products alone, against the tutorial's, and as caches grow."""
    plain = plain_model()
    for dtype in ("float32", "bfloat16"):
        runner = started(dtype)
        open_arena(runner, 32)
        for threads in effort.threads:
            torch.set_num_threads(threads)
            _against_products(report, runner, dtype, threads, effort)
            if dtype == "float32":
                _against_tutorial(report, runner, plain, threads, effort)


def _against_products(report: Report, runner: TorchRunner, dtype: str, threads: int, effort: Effort) -> None:
    products = Products(runner)
    for rows in (3, 8, 16, 32):
        plan = decode_plan(rows, 100)
        contenders = {"step": lambda plan=plan: runner.run(plan), "products": partial(products.run, rows)}
        times = interleaved(contenders, 5 + 5 * effort.rounds, warm=2)
        report.add(
            Line(
                f"step / its products alone, {rows} sequences × 100 cached, {dtype}, {threads} threads",
                median_ratio(times, "step", "products"),
                target=1.5 if dtype == "float32" else None,
                at_most=True,
                note=f"{1e3 * statistics.median(times['step']):.1f} ms a step",
            )
        )


def _against_tutorial(
    report: Report, runner: TorchRunner, plain: PreTrainedModel, threads: int, effort: Effort
) -> None:
    contenders: dict[str, Callable[[], object]] = {}
    for cached in (100, 500, 1000):
        running = _with_caches(plain, 8, cached)
        contenders[f"tutorial {cached}"] = partial(_tutorial_step, plain, running)
        contenders[f"ours {cached}"] = partial(runner.run, decode_plan(8, cached))
    times = interleaved(contenders, 2 + 3 * effort.rounds, warm=1)
    ratio = median_ratio(times, "tutorial 500", "ours 500")
    ms = {name: 1e3 * statistics.median(taken) for name, taken in times.items()}
    note = f"{ms['tutorial 500']:.0f} / {ms['ours 500']:.0f} ms"
    report.add(
        Line(
            f"a tutorial step / ours, 8 sequences × 500 cached, {threads} threads",
            ratio,
            target=3.5,
            note=note,
        )
    )
    growth = {who: (ms[f"{who} 1000"] - ms[f"{who} 100"]) / 0.9 for who in ("tutorial", "ours")}
    report.add(
        Line(
            f"growth a 1,000 cached tokens of 8 sequences, tutorial / ours, {threads} threads",
            growth["tutorial"] / growth["ours"],
            target=5.0,
            note=f"{growth['tutorial']:.0f} / {growth['ours']:.0f} ms",
        )
    )


def _with_caches(model: PreTrainedModel, count: int, cached: int) -> list[Running]:
    config = model.config
    shape = (1, config.num_key_value_heads, cached, config.hidden_size // config.num_attention_heads)
    return [
        Running(
            [100 + i],
            1,
            i,
            [torch.randn(shape) for _ in range(config.num_hidden_layers)],
            [torch.randn(shape) for _ in range(config.num_hidden_layers)],
        )
        for i in range(count)
    ]


def _tutorial_step(model: PreTrainedModel, running: list[Running]) -> None:
    """A step with its copies; the caches grow by a token each time, as they would."""
    with torch.inference_mode():
        tutorial_step(model, running)


def pages(report: Report, effort: Effort) -> None:
    """What blocks cost against one slab a slot, and away from home."""
    runner = started("float32")
    open_arena(runner, 8)
    runner.open_arena(1, ArenaShape(8, HOME_TOKENS, 8))
    contenders = {
        "slabs": partial(runner.run, structs.replace(decode_plan(8, 500, HOME_TOKENS), arena_id=1)),
        "home": partial(runner.run, decode_plan(8, 500)),
        "scattered": partial(runner.run, scattered(decode_plan(8, 500), HOME_TOKENS // 2)),
    }
    for threads in effort.threads:
        torch.set_num_threads(threads)
        times = interleaved(contenders, 8 + 8 * effort.rounds, warm=2)
        for name, what, target in (("home", "at home", 1.05), ("scattered", "scattered", None)):
            ratio = median_ratio(times, name, "slabs")
            what = f"blocks {what} / slabs, 8 sequences × 500 cached, {threads} threads"
            report.add(Line(what, ratio, target=target, at_most=True))


def modes(report: Report, effort: Effort) -> None:
    """Static against continuous on the same code: in steps and in seconds."""
    runner, work = started("float32"), jobs(effort.scale)
    torch.set_num_threads(effort.threads[-1])
    for slots in range(1, 7):
        steps: dict[str, int] = {}

        def run(mode: str, slots: int = slots, steps: dict[str, int] = steps) -> None:
            steps[mode] = run_jobs(runner, work, mode, slots)[1]

        names = ("static", "continuous-padded", "continuous")
        times = interleaved({name: partial(run, name) for name in names}, effort.rounds)
        note = ", ".join(f"{name} {steps[name]} steps" for name in names)
        report.add(
            Line(
                f"static / continuous in steps, {slots} slots",
                steps["static"] / steps["continuous"],
                note=note,
            )
        )
        seconds = ", ".join(f"{name} {statistics.median(times[name]):.1f} s" for name in names)
        report.add(
            Line(
                f"static / continuous in seconds, {slots} slots, {effort.threads[-1]} threads",
                median_ratio(times, "static", "continuous"),
                note=seconds,
            )
        )


def start(report: Report, effort: Effort) -> None:
    """How long until the model is ready, when it is in the cache."""
    begun = time.perf_counter()
    started("float32")
    report.add(Line("model ready", time.perf_counter() - begun, "s", target=6.0, at_most=True))
