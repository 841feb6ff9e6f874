"""Records the traces the snapshot tests are fed from: the tutorial's six prompts on the default model.

    python -m tests.snapshots.record_traces [NAME …]

Run again only when records change their form. Time is made up (a fixed cost a step and a token), so that a
busy machine leaves no mark in the pictures; every token is the model's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.scheduling.modes import MODES
from engine.session import drain, encode, submit, token_bytes_of, wait_until_ready
from engine.step.plan import Plan, Reply
from engine.stream.records import SCHEMA_VERSION, TraceHeader
from engine.stream.trace import TraceWriter
from engine.worker import RunnerSpec, WorkerRunner
from engine.workload import tutorial_workload

DATA = Path(__file__).parent.parent / "data"
#: Output tokens of the six: about a fifth of the tutorial's, so that a trace stays small.
CAPS = (6, 20, 48, 12, 30, 9)
#: A run that begins continuous and is switched to static after so many steps; six more are kept.
SWITCHED, SWITCH_AFTER = "switched", 8
#: A run with so few KV blocks that somebody has to give way; it ends some steps after that.
PREEMPTED, FEW_BLOCKS = "preempted", 4
STEP_S, TOKEN_S = 0.05, 0.0008


class TimedRunner(WorkerRunner):
    """The model, and a clock that only it moves."""

    now_s = 0.0

    def run(self, plan: Plan) -> Reply:
        reply = super().run(plan)
        forward_s = STEP_S + TOKEN_S * sum(len(row.token_ids) for row in plan.rows)
        self.now_s += forward_s
        return msgspec.structs.replace(reply, forward_s=forward_s, sample_s=0.001)


def main() -> None:
    runner = TimedRunner(RunnerSpec())
    try:
        ready = wait_until_ready(runner)
        requests = [
            msgspec.structs.replace(request, max_tokens=cap)
            for request, cap in zip(tutorial_workload(), CAPS, strict=True)
        ]
        prompts = encode(runner, requests)
        for name in sys.argv[1:] or (*MODES, SWITCHED, PREEMPTED):
            config = EngineConfig(mode=name if name in MODES else "continuous")
            if name == PREEMPTED:
                config = msgspec.structs.replace(config, num_blocks=FEW_BLOCKS, max_model_len=64)
            given_way = 0
            engine = Engine(
                config,
                runner,
                ready.info,
                clock=EngineClock(lambda: runner.now_s),
                token_bytes=token_bytes_of(ready.info),
                n_top=3,
            )
            for request, prompt in zip(requests, prompts, strict=True):
                submit(engine, request, prompt)
            header = TraceHeader(SCHEMA_VERSION, "SmolLM2-135M-Instruct", "cpu", "float32")
            path = DATA / f"trace-{name}.jsonl"
            with path.open("wb") as file:
                writer = TraceWriter(file, header)
                for record in drain(engine):
                    writer.write(record)
                    if name == SWITCHED and record.step == SWITCH_AFTER:
                        engine.set_mode("static")
                    if name == SWITCHED and record.step == SWITCH_AFTER + 6:
                        break
                    if record.events.preempted and not given_way:
                        given_way = record.step
                    if name == PREEMPTED and given_way and record.step == given_way + 3:
                        break
            print(path, path.stat().st_size, file=sys.stderr)
    finally:
        runner.close()


if __name__ == "__main__":
    main()
