"""What scheduling and recording cost a step, on a model that costs nothing, and opening what was recorded.

The first must not grow with the queue.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.replay import ReplayLoop
from engine.request import SamplingParams
from engine.session import drain
from engine.step.plan import Plan, Reply
from engine.stream.trace_files import TraceRecorder, header_of, opened
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
    with tempfile.TemporaryDirectory() as folder:
        report.add(Line("10,000 recorded steps opened", _opened_s(Path(folder) / "a.trace"), "s", 1.0, True))


def _opened_s(path: Path) -> float:
    """Processor seconds of playing a trace of 10,000 steps of three slots to its end."""
    runner = FakeRunner()
    runner.start()
    config = EngineConfig(num_blocks=2048)
    engine = Engine(config, runner, runner.info, token_bytes=fake_token_bytes, n_top=5)
    for number in range(300):
        engine.add_request(list(b"prompt %d" % number), SamplingParams(max_tokens=100, ignore_eos=True))
    recorder = TraceRecorder(path)
    recorder.begin(header_of(runner.info, config))
    for record in drain(engine):
        recorder.write(record)
    recorder.close()
    begun = time.process_time()
    mailbox = Mailbox()
    with opened(path) as (header, records):
        loop = ReplayLoop(
            header,
            records,
            commands=CommandQueue(),
            mailbox=mailbox,
            history=History(100_000),
            upto=float("inf"),
        )
        while mailbox.latest().status != "idle":
            loop.turn()
    return time.process_time() - begun
