"""What scheduling and recording cost a step, on a model that costs nothing.

It must not grow with the queue.
"""

from __future__ import annotations

import statistics
import time

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.step.plan import Plan, Reply
from tests.benchmarks.report import Line, Report

SLOTS = 64
STEPS = 400


class Timed(FakeRunner):
    """Keeps the seconds spent in the fake forwards, to take them off."""

    spent_s = 0.0

    def run(self, plan: Plan) -> Reply:
        begun = time.perf_counter()
        reply = super().run(plan)
        self.spent_s += time.perf_counter() - begun
        return reply


def scale(report: Report) -> None:
    """Median of a step's scheduling, planning and record, 64 slots busy all the time."""
    for slots, requests in ((3, 200), (SLOTS, 200), (SLOTS, 2_000), (SLOTS, 8_000)):
        runner = Timed()
        config = EngineConfig(max_num_seqs=slots, num_blocks=4096)
        engine = Engine(config, runner, runner.info)
        for number in range(requests):
            engine.add_request([number % 250, 1, 2, 3], SamplingParams(max_tokens=40 + number % 50))
        costs = []
        while engine.has_work and len(costs) < STEPS:
            begun, before = time.perf_counter(), runner.spent_s
            engine.step()
            costs.append(1000 * (time.perf_counter() - begun - (runner.spent_s - before)))
        what = f"scheduler + record a step, {slots} slots, {requests:,} requests"
        report.add(Line(what, statistics.median(costs), "ms", 2.0, True))
