"""`cbtui bench`: the engine alone, without a screen: each mode at several batch sizes, and as caches grow.

Numbers are of one machine at one moment; what lasts are the ratios between lines of one run.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cbtui.cli.model_options import Json, Model, RunsOn

if TYPE_CHECKING:
    from cbtui.cli.console import Progress
    from engine.runner import ModelRunner, Ready
    from engine.stream.records import StepRecord

MODES = ("static", "continuous-padded", "continuous")
#: Output tokens of neighbouring requests: unequal, since that is what continuous batching is for.
OUTPUT_TOKENS = (8, 32, 16, 48)
PROMPT_TOKENS = 16
#: Requests for each slot: later ones have to wait.
REQUESTS_PER_SLOT = 2
#: Sequences, and decode steps timed, where caches grow.
GROWTH_SEQUENCES, GROWTH_STEPS = 4, 10


class ModeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of unequal requests in one mode.

    `step_ms` is the median of all steps, scheduling and sampling included; `tokens_per_s` counts output
    tokens over the steps' time.
    """

    mode: str
    slots: int
    requests: int
    output_tokens: int
    steps: int
    seconds: float
    step_ms: float
    tokens_per_s: float


class GrowthLine(msgspec.Struct, frozen=True, kw_only=True):
    """Median decode step of some sequences with about as many cached tokens each."""

    sequences: int
    cached_tokens: int
    step_ms: float


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `machine` says what the numbers depend on."""

    model: str
    machine: dict[str, str]
    modes: tuple[ModeLine, ...]
    growth: tuple[GrowthLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much to run: batch sizes, and cached tokens at which a decode step is timed."""

    slots: tuple[int, ...]
    cached: tuple[int, ...]


def bench(
    *,
    slots: Annotated[str, typer.Option(metavar="N,…", help="Batch sizes.")] = "1,3,8",
    cached: Annotated[
        str, typer.Option(metavar="N,…", help="Cached tokens at which a decode step is timed.")
    ] = "100,500,1000",
    as_json: Json = False,
    model: Model = None,
    runs_on: RunsOn,
) -> int:
    """Time the engine: modes, batch sizes, growing caches."""
    from cbtui.cli.console import Progress, json_text, report_console, write_line
    from cbtui.cli.models import loaded_model

    sizes = Sizes(slots=_numbers("--slots", slots), cached=_numbers("--cached", cached))
    progress = Progress()
    with loaded_model(runs_on.spec(model), progress) as (runner, ready):
        bencher = _Bencher(runner, ready, progress)
        modes = bencher.modes(sizes.slots)
        growth = bencher.growth(sizes.cached)
        progress.clear()
        info = ready.info
    result = BenchResult(
        model=info.name,
        machine=machine() | {"device": info.device, "dtype": info.dtype, "threads": str(info.num_threads)},
        modes=tuple(modes),
        growth=tuple(growth),
    )
    if as_json:
        write_line(json_text(result))
    else:
        console, _ = report_console()
        for line in report_lines(result):
            console.print(line)
    return 0


class _Bencher:
    """Runs workloads on one loaded model."""

    def __init__(self, runner: ModelRunner, ready: Ready, progress: Progress) -> None:
        self._runner = runner
        self._ready = ready
        self._progress = progress

    def modes(self, slots: Iterable[int]) -> list[ModeLine]:
        """Each mode at each batch size, after a short run of each to warm up."""
        lines = []
        for count in slots:
            for mode in MODES:
                self._progress.say(f"{mode}, {count} slots")
                self._run(mode, count, [(PROMPT_TOKENS, 2)] * count)
                number = REQUESTS_PER_SLOT * count
                sizes = [(PROMPT_TOKENS, OUTPUT_TOKENS[i % len(OUTPUT_TOKENS)]) for i in range(number)]
                steps = self._run(mode, count, sizes)
                lines.append(_mode_line(mode, count, sizes, steps))
        return lines

    def growth(self, cached: Iterable[int]) -> list[GrowthLine]:
        """Decode steps of a few sequences at each number of cached tokens, as far as the model goes."""
        lines = []
        for count in cached:
            if count + GROWTH_STEPS > self._ready.info.max_model_len:
                continue
            self._progress.say(f"{GROWTH_SEQUENCES} sequences with {count} cached tokens")
            steps = self._run("continuous", GROWTH_SEQUENCES, [(count, GROWTH_STEPS + 1)] * GROWTH_SEQUENCES)
            decodes = [step for step in steps if step.tokens.decode == GROWTH_SEQUENCES]
            line = GrowthLine(sequences=GROWTH_SEQUENCES, cached_tokens=count, step_ms=_median_ms(decodes))
            lines.append(line)
        return lines

    def _run(self, mode: str, slots: int, sizes: list[tuple[int, int]]) -> list[StepRecord]:
        """Requests of (prompt tokens, output tokens) through a new engine; its steps."""
        from engine.config import EngineConfig
        from engine.engine import Engine
        from engine.request import SamplingParams
        from engine.session import config_for, drain
        from engine.stream.records import StepRecord

        info = self._ready.info
        blocks = max(512, -(-sum(prompt + output for prompt, output in sizes) // 16) + slots)
        config = config_for(EngineConfig(mode=mode, max_num_seqs=slots, num_blocks=blocks), info)
        engine = Engine(config, self._runner, info, epoch=self._ready.epoch)
        for number, (prompt, output) in enumerate(sizes):
            # Any ids will do: what is timed does not depend on them.
            ids = [(7 * place + number) % info.vocab_size for place in range(prompt)]
            engine.add_request(ids, SamplingParams(max_tokens=output, ignore_eos=True))
        return [record for record in drain(engine) if isinstance(record, StepRecord)]


def _mode_line(mode: str, slots: int, sizes: list[tuple[int, int]], steps: list[StepRecord]) -> ModeLine:
    seconds = sum(step.end_s - step.start_s for step in steps)
    tokens = sum(output for _, output in sizes)
    return ModeLine(
        mode=mode,
        slots=slots,
        requests=len(sizes),
        output_tokens=tokens,
        steps=len(steps),
        seconds=seconds,
        step_ms=_median_ms(steps),
        tokens_per_s=tokens / seconds if seconds else 0.0,
    )


def _median_ms(steps: list[StepRecord]) -> float:
    return 1e3 * statistics.median(step.end_s - step.start_s for step in steps) if steps else 0.0


def report_lines(result: BenchResult) -> list[str]:
    """The result as text, no wider than 80 columns."""
    lines = [result.model, ", ".join(result.machine.values()), ""]
    lines.append("slots  mode               steps  ms/step  seconds  tokens/s     ratio")
    for slots in dict.fromkeys(line.slots for line in result.modes):
        group = [line for line in result.modes if line.slots == slots]
        slowest = max(line.seconds for line in group)
        for line in group:
            ratio = slowest / line.seconds if line.seconds else 1.0
            lines.append(
                f"{slots:>5}  {line.mode:<18}{line.steps:>6}{line.step_ms:>9.1f}{line.seconds:>9.2f}"
                f"{line.tokens_per_s:>10.1f}{ratio:>10.2f}"
            )
    if result.growth:
        lines += ["", f"a decode step of {result.growth[0].sequences} sequences as their caches grow"]
        first = result.growth[0].step_ms or 1.0
        lines += [
            f"{line.cached_tokens:>7,} cached tokens each{line.step_ms:>9.1f} ms{line.step_ms / first:>10.2f}"
            for line in result.growth
        ]
    return lines


def machine() -> dict[str, str]:
    """What numbers depend on besides the model: processor, cores, load, system."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {
        "processor": _processor(),
        "cores": f"{os.cpu_count()} cores",
        "load": f"load {load:.1f} before",
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"Python {platform.python_version()}",
    }


def _processor() -> str:
    """The processor's name as Linux knows it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """`1,3,8` as numbers.

    Raises:
        ValueError: it is not that.
    """
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ValueError(f"{option} must be numbers above 0 with commas between them, not {text}")
    return numbers
