"""Runs in vLLM's environment, not in ours: a real vLLM that runs the same jobs with its scheduler recorded
or not, as it is told.

    python vllm_run_child.py     (orders on standard input, answers on standard output, a line of JSON each)

The first order is `{"model": a folder, "engine": arguments of vLLM's `LLM`}`; each later one, `{"jobs":
[[prompt ids, output tokens]…], "recorded": bool}`, is a run of all jobs and answered with its number of
`steps`, their median duration `step_s`, and what the recorder took of all: `hooks_s`, and `thread_s` of
processor time in its thread.
Without a recorder the very class of the scheduler is vLLM's own, so that nothing of ours is left in a step.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to where the answers go
    asked = json.loads(sys.stdin.readline())
    from vllm import LLM

    llm = LLM(
        asked["model"],
        enforce_eager=True,
        scheduler_cls="cbtui_vllm.scheduler.RecordingScheduler",
        **asked["engine"],
    )
    engine = llm.llm_engine
    scheduler = engine.engine_core.engine_core.scheduler
    recording = type(scheduler)
    plain = next(one for one in recording.__mro__ if one.__module__.startswith("vllm."))
    print(json.dumps({"vllm": plain.__name__}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        scheduler.__class__ = recording if order["recorded"] else plain
        print(json.dumps(run(engine, scheduler._recorder, order["jobs"])), file=answers, flush=True)
    scheduler.__class__ = recording
    engine.engine_core.shutdown()


def run(engine: Any, recorder: Any, jobs: list[tuple[list[int], int]]) -> dict[str, float]:
    """All jobs, there before the first step."""
    from vllm import SamplingParams

    before = recorder._cost()
    for number, (prompt, num_tokens) in enumerate(jobs):
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
    times = []
    while engine.has_unfinished_requests():
        begun = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - begun)
    after = recorder._cost()
    taken = {name: after[name] - before[name] for name in ("hooks_s", "thread_s", "lost", "faults")}
    return {"step_s": statistics.median(times), "steps": len(times), **taken}


if __name__ == "__main__":
    main()
