"""Plans, events and conditions for tests of the worker."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from engine.request import SamplingParams
from engine.runner import Ready, RunnerEvent
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, PlanRow
from engine.worker import WorkerRunner
from tests.worker.fake_models import mood_token

LIMIT_S = 20.0
SHAPE = ArenaShape(num_blocks=8, block_size=4, num_slots=4)
E = TypeVar("E")


def until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what or condition}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Ended; a zombie nobody reaps counts, for that is its parent's affair."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        state = stat.read_text().rpartition(")")[2] if Path("/proc/self").exists() else _ps(pid)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.strip()[:1] in ("", "Z", "X")


def _ps(pid: int) -> str:
    return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout


def plan_of(*token_ids: int, step: int = 1, epoch: int = 1, arena_id: int = 0) -> Plan:
    row = PlanRow("r0", 0, "prefill", list(token_ids), 0, len(token_ids), [0], SamplingParams())
    return Plan(epoch, arena_id, step, "ragged", [row])


def mood(name: str, step: int = 1, epoch: int = 1) -> Plan:
    return plan_of(mood_token(name), step=step, epoch=epoch)


class Events:
    """A runner's events so far, and waiting for one of a kind."""

    def __init__(self, runner: WorkerRunner) -> None:
        self._runner = runner
        self.seen: list[RunnerEvent] = []

    def poll(self) -> list[RunnerEvent]:
        self.seen += self._runner.poll()
        return self.seen

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.poll() if isinstance(event, kind)]

    def wait(self, kind: type[E], count: int = 1) -> E:
        until(lambda: len(self.of(kind)) >= count, f"{kind.__name__} in {self.seen}")
        return self.of(kind)[count - 1]


def make_it_ready(runner: WorkerRunner) -> None:
    runner.start()
    Events(runner).wait(Ready)
    runner.open_arena(0, SHAPE)
