"""Runs in vLLM's environment, not in ours: vLLM's own scheduler is taken through cases, each recorded.

    python scheduler_cases.py MODEL FOLDER

Each case leaves `FOLDER/NAME.jsonl`, the stream. Prints what else there is to say of each, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_scheduler import HEADS, Rig, full
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import RequestStatus

Make = Callable[..., Rig]


def sessions(make: Make) -> dict[str, Any]:
    """Prompts in chunks: after an end, before it, many, and the end of all."""
    rig = make()
    rig.add("a", 8, 2, resumable=True)
    rig.turn(3)
    rig.add("a", 5, 2, resumable=True)
    rig.turn(3)
    rig.add("a", 1, 2)  # without another chunk: it is over
    alive = list(rig.scheduler.requests)
    rig.add("b", 4, 2, resumable=True)
    for _ in range(12):
        rig.turn()
        rig.add("b", 3, 2, resumable=True)
        rig.turn()
    return {"alive": alive, "faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def without_groups(make: Make) -> dict[str, Any]:
    """A model that keeps no keys."""
    rig = make(specs=[], enable_prefix_caching=False)
    for number in range(25):
        rig.add(f"r{number}", 6, pooled=True)
        rig.turn(pooled=True)
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def _tables(make: Make, specs: list[Any], **more: Any) -> dict[str, Any]:
    rig = make(specs=specs, num_blocks=200, **more)
    for name in ("a", "b"):
        rig.add(name, 100, 40)
    rig.turn(30)
    shown = rig.recorder._shown
    tables = {
        name: rig.scheduler.kv_cache_manager.get_block_ids(name)[shown.number]
        for name in rig.scheduler.requests
    }
    faults = rig.recorder.num_faults
    rig.lines()
    return {
        "tables": tables,
        "faults": faults,
        "windowed": shown.is_windowed,
        "group": shown.number,
        "scheduler_block_size": rig.scheduler.block_size,
    }


def sliding(make: Make) -> dict[str, Any]:
    return _tables(make, [SlidingWindowSpec(block_size=16, sliding_window=32, **HEADS)])


def chunked_local(make: Make) -> dict[str, Any]:
    return _tables(make, [ChunkedLocalAttentionSpec(block_size=16, attention_chunk_size=32, **HEADS), full()])


def two_sizes(make: Make) -> dict[str, Any]:
    other = SlidingWindowSpec(block_size=48, sliding_window=96, **HEADS)
    return _tables(make, [full(), other], enable_prefix_caching=False)


def ends(make: Make) -> dict[str, Any]:
    """By the scheduler's own error, from outside with other reasons."""
    rig = make()
    for name in ("a", "b", "c"):
        rig.add(name, 8, 9)
    rig.turn()
    rig.scheduler.finish_requests("a", RequestStatus.FINISHED_ERROR)
    rig.scheduler.finish_requests(["b"], RequestStatus.FINISHED_STOPPED)
    rig.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def reset(make: Make) -> dict[str, Any]:
    """The prefix cache is reset while two run."""
    rig = make()
    for name in ("a", "b"):
        rig.add(name, 8, 9)
    rig.turn(2)
    rig.scheduler.reset_prefix_cache(reset_running_requests=True)
    rig.turn(2)
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def not_chunked(make: Make) -> dict[str, Any]:
    """Two prompts of which one fills the budget."""
    rig = make(enable_chunked_prefill=False, max_num_batched_tokens=1024)
    for start, name in enumerate(("a", "b")):
        rig.add(name, 600, start=start)
    rig.turn()
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def paused(make: Make) -> dict[str, Any]:
    """One runs, one comes while nobody new is let in; later they are."""
    rig = make()
    rig.add("a")
    rig.turn()
    rig.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    rig.add("b")
    rig.turn(2)
    rig.scheduler.set_pause_state(PauseState.UNPAUSED)
    rig.turn(2)
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def few_blocks(make: Make) -> dict[str, Any]:
    """Blocks for one prompt only."""
    rig = make(num_blocks=10)
    for start, name in enumerate(("a", "b")):
        rig.add(name, 100, 4, start=start)
    rig.turn(3)
    return {"faults": rig.recorder.num_faults, "lines": len(rig.lines())}


def diffusion(make: Make) -> dict[str, Any]:
    """vLLM has a scheduler of its own for such models."""
    diffuses = SimpleNamespace(canvas_length=4)
    rig = make(change=lambda config: setattr(config, "diffusion_config", diffuses))
    return {"class": type(rig.scheduler).__name__, "recorded": rig.path.exists()}


CASES = (
    sessions,
    without_groups,
    sliding,
    chunked_local,
    two_sizes,
    ends,
    reset,
    not_chunked,
    paused,
    few_blocks,
    diffusion,
)


def main() -> None:
    model, folder = sys.argv[1], Path(sys.argv[2])
    said = {}
    for case in CASES:
        path = folder / f"{case.__name__}.jsonl"
        said[case.__name__] = case(lambda path=path, **more: Rig(model, path, **more))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
