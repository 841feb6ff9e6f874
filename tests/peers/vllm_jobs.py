"""Runs in vLLM's environment, not in ours: jobs in, their output tokens out, every step in a file.

    python vllm_jobs.py JOB_FILE STREAM_FILE

The job file is JSON: `model` a folder, `jobs` [[prompt ids, output tokens]…], `engine` arguments of vLLM's
`LLM`, `abort_after` {number of a job: steps}. All jobs are there before the first step. Prints the output
tokens as JSON, in order.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    os.environ["CBTUI_VLLM_STREAM"] = sys.argv[2]
    from vllm import LLM, SamplingParams

    llm = LLM(
        asked["model"],
        dtype="float32",
        enforce_eager=True,
        scheduler_cls="cbtui_vllm.scheduler.RecordingScheduler",
        served_model_name=asked.get("name"),
        **asked["engine"],
    )
    engine = llm.llm_engine
    for number, (prompt, num_tokens) in enumerate(asked["jobs"]):
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
    abort_after = {int(number): steps for number, steps in asked.get("abort_after", {}).items()}
    results: dict[int, list[int]] = {}
    step = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                results[int(output.request_id)] = list(output.outputs[0].token_ids)
        step += 1
        gone = [str(number) for number, after in abort_after.items() if after == step]
        if gone:
            engine.abort_request(gone)
    engine.engine_core.shutdown()
    print(json.dumps([results.get(number) for number in range(len(asked["jobs"]))]))


if __name__ == "__main__":
    main()
