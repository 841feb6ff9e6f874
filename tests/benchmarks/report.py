"""Interleaved timing, targets, and the table they end in."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from rich.console import Console
from rich.table import Table

Times = dict[str, list[float]]
T = TypeVar("T")


#: What is timed: elapsed seconds, or with `--cpu` the processor time of this process.
clock: Callable[[], float] = time.perf_counter


def use_cpu_time() -> None:
    """Time the processor from now on: for one thread on a machine that others use too."""
    global clock
    clock = time.process_time


def in_turns(contenders: Mapping[str, Callable[[], T]], rounds: int, warm: int = 0) -> dict[str, list[T]]:
    """What each contender gave in each round; in each round everyone runs once, in turning order."""
    names = list(contenders)
    for _ in range(warm):
        for name in names:
            contenders[name]()
    given: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            given[name].append(contenders[name]())
    return given


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int, warm: int = 0) -> Times:
    """Seconds of each contender in each round, as `in_turns`."""
    return in_turns({name: partial(_timed, run) for name, run in contenders.items()}, rounds, warm)


def _timed(run: Callable[[], object]) -> float:
    begun = clock()
    run()
    return clock() - begun


def median_ratio(times: Times, slow: str, fast: str) -> float:
    """How many times longer `slow` took than `fast`: the median over the rounds, each taken at one time."""
    return statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))


@dataclass
class Line:
    """A row of the table. `target` None: no target, for information."""

    what: str
    measured: float
    unit: str = "×"
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.measured <= self.target if self.at_most else self.measured >= self.target


@dataclass
class Report:
    """All lines, and the machine they were taken on."""

    machine: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Take a line in, and say it at once: a long run may be broken off."""
        self.lines.append(line)
        met = {None: "", True: "  met", False: "  NOT MET"}[line.met]
        print(f"  {line.what}: {line.measured:.2f} {line.unit}{met}  {line.note}", flush=True)

    def leave_out(self, why: str) -> None:
        """Say what is not measured here, and why."""
        self.left_out.append(why)
        print(f"  {why}", flush=True)

    def as_data(self) -> dict[str, Any]:
        lines = [asdict(line) | {"met": line.met} for line in self.lines]
        return {"machine": self.machine, "lines": lines, "left_out": self.left_out}

    def print(self) -> None:
        """The table."""
        table = Table(title=" · ".join(str(value) for value in self.machine.values()))
        for name in ("", "target", "measured", "met", "note"):
            table.add_column(name, justify="right" if name in ("target", "measured") else "left")
        for line in self.lines:
            sign = "≤" if line.at_most else "≥"
            target = "" if line.target is None else f"{sign} {line.target:g} {line.unit}"
            met = {None: "", True: "yes", False: "no"}[line.met]
            table.add_row(line.what, target, f"{line.measured:.2f} {line.unit}", met, line.note)
        console = Console(width=150)
        console.print(table)
        for why in self.left_out:
            console.print(why)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {
        "cpu": _cpu_name(),
        "cores": f"{os.cpu_count()} cores",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": f"torch {torch.__version__}",
        "transformers": f"transformers {transformers.__version__}",
        "python": f"Python {platform.python_version()}",
        "load": f"load {load:.1f} at the start",
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
