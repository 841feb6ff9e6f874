"""Runs in vLLM's environment, not in ours: vLLM's real scheduler, driven without a model.

    python vllm_hooks_child.py MODEL_FOLDER     (orders on standard input, answers on standard output)

Of the model only its configuration is read. An order `{"sequences": n}` makes two schedulers with so many
running requests each: vLLM's own, and the recorded one, which writes to the socket `CBTUI_VLLM_STREAM`
names. `{"steps": n}` runs so many steps of both in turns and is answered with microseconds a step, medians:
`plain` (vLLM's own schedule() and update_from_output()), `recorded` (the same of the recorded one), `hooks`
(the recorder's own count); and `thread`, processor time of its thread, a mean. In the place of the forward
stands a pause, in which the recorder's thread has the interpreter for itself, as while a GPU computes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

BLOCK_SIZE, NUM_BLOCKS, MAX_LEN = 16, 1 << 15, 2048
MOST_SEQUENCES = 256
#: Prompts are so long, and up to a block longer: a block is begun in every step, not in all rows at once.
PROMPT_TOKENS = 96
FORWARD_S = 0.002
#: Steps in which the prompts are fed and everything is called for the first time.
WARM_STEPS = 10


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    maker = Maker(sys.argv[1])
    pair: list[Driven] = []
    for line in sys.stdin:
        order = json.loads(line)
        if "sequences" in order:
            for one in pair:
                one.scheduler.shutdown()
            pair = [Driven(maker, is_recorded, order["sequences"]) for is_recorded in (False, True)]
            answer = {"running": [len(one.scheduler.running) for one in pair]}
        else:
            answer = measured(*pair, order["steps"])
        print(json.dumps(answer), file=answers, flush=True)
    for one in pair:
        one.scheduler.shutdown()


def measured(plain: Driven, recorded: Driven, steps: int) -> dict[str, float]:
    """Microseconds a step, as above."""
    recorder = recorded.scheduler._recorder
    times: dict[str, list[float]] = {"plain": [], "recorded": [], "hooks": []}
    thread_s = recorder._cost()["thread_s"]
    for number in range(steps):
        for one in (plain, recorded) if number % 2 else (recorded, plain):
            spent_ns = recorder.spent_ns
            times["plain" if one is plain else "recorded"].append(1e6 * one.step())
            if one is recorded:
                times["hooks"].append((recorder.spent_ns - spent_ns) / 1e3)
    thread_s = recorder._cost()["thread_s"] - thread_s
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return medians | {"thread": 1e6 * thread_s / steps, "faults": recorder.num_faults}


class Maker:
    """Makes schedulers as vLLM's engine does, for a model of which only the configuration is there."""

    def __init__(self, model: str) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        arguments = EngineArgs(
            model=model,
            enforce_eager=True,
            max_model_len=MAX_LEN,
            max_num_seqs=MOST_SEQUENCES,
            max_num_batched_tokens=MOST_SEQUENCES * 2 * PROMPT_TOKENS,
            block_size=BLOCK_SIZE,
        )
        self.config = arguments.create_engine_config()
        self.config.cache_config.num_gpu_blocks = NUM_BLOCKS
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)

    def scheduler(self, is_recorded: bool) -> Any:
        import torch
        from cbtui_vllm.scheduler import RecordingScheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        cache = KVCacheConfig(
            num_blocks=NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        make = RecordingScheduler if is_recorded else self.config.scheduler_config.get_scheduler_cls()
        return make(
            vllm_config=self.config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=BLOCK_SIZE,
            log_stats=True,
        )

    def request(self, number: int) -> Any:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        length = PROMPT_TOKENS + number % BLOCK_SIZE
        prompt = [(number * 7 + place) % 1000 for place in range(length)]
        params = SamplingParams(temperature=0.0, max_tokens=MAX_LEN - length, ignore_eos=True)
        return Request(str(number), prompt, params, None, block_hasher=self._hasher)


class Driven:
    """A scheduler with requests that run, whose every forward gives one token each."""

    def __init__(self, maker: Maker, is_recorded: bool, sequences: int) -> None:
        self.scheduler = maker.scheduler(is_recorded)
        for number in range(sequences):
            self.scheduler.add_request(maker.request(number))
        for _ in range(WARM_STEPS):
            self.step()
        assert len(self.scheduler.running) == sequences

    def step(self) -> float:
        """A step; seconds spent in the scheduler."""
        from vllm.v1.outputs import ModelRunnerOutput

        begun = time.perf_counter()
        scheduled = self.scheduler.schedule()
        spent = time.perf_counter() - begun
        ids = list(scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={one: index for index, one in enumerate(ids)},
            sampled_token_ids=[[index % 1000] for index in range(len(ids))],
        )
        time.sleep(FORWARD_S)
        begun = time.perf_counter()
        self.scheduler.update_from_output(scheduled, output)
        spent += time.perf_counter() - begun
        time.sleep(FORWARD_S)
        return spent


if __name__ == "__main__":
    main()
