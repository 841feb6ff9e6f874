"""Records the trace that plays while the model loads: the tutorial's beginning on the default model.

Run it by hand: `python -m tests.app.record_welcome`.
"""

from __future__ import annotations

import sys

from cbtui.following.welcome import TRACE
from engine.config import EngineConfig
from engine.engine import Engine
from engine.session import encode, submit, token_bytes_of, wait_until_ready
from engine.stream.records import SCHEMA_VERSION, StepRecord, TraceHeader
from engine.stream.trace import TraceWriter
from engine.worker import WorkerRunner
from engine.workload import tutorial_workload

#: The first request has ended, the fourth has run, the fifth and sixth have entered.
STEPS = 56
#: The quickest run is kept: on a busy machine the others say more of their neighbours than of the engine.
RUNS = 6


def engine_step(engine: Engine) -> StepRecord:
    record = engine.step()
    assert record is not None
    return record


def main() -> None:
    runner = WorkerRunner()
    try:
        ready = wait_until_ready(runner)
        requests = tutorial_workload()
        prompts = encode(runner, requests)

        def engine() -> Engine:
            made = Engine(
                EngineConfig(),
                runner,
                ready.info,
                token_bytes=token_bytes_of(ready.info),
                n_top=3,
                arena_id=0,
            )
            for request, prompt in zip(requests, prompts, strict=True):
                submit(made, request, prompt)
            return made

        runs = [[engine_step(one) for _ in range(STEPS)] for one in (engine() for _ in range(RUNS))]
        quietest = min(runs, key=lambda run: run[-1].end_s)
        info = ready.info
        with TRACE.open("wb") as file:
            writer = TraceWriter(file, TraceHeader(SCHEMA_VERSION, info.name, info.device, info.dtype))
            for record in quietest:
                writer.write(record)
        print(TRACE, TRACE.stat().st_size, file=sys.stderr)
    finally:
        runner.close()


if __name__ == "__main__":
    main()
