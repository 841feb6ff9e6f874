"""What a server says of itself at the head of a stream. Reads vLLM's configuration, decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

#: Of the lines; a reader refuses a newer one.
VERSION = 1


def shown_group(scheduler: Any) -> tuple[int, bool]:
    """Which group of KV blocks is shown, where a model has several, and whether it is windowed.

    One whose layers keep every key, if there is one; its tables only grow.
    """
    groups = scheduler.kv_cache_config.kv_cache_groups
    for number, group in enumerate(groups):
        spec = group.kv_cache_spec
        if not getattr(spec, "sliding_window", None) and hasattr(spec, "head_size"):
            return number, False
    return 0, True


def facts_of(config: Any, scheduler: Any) -> dict[str, Any]:
    """The header's fields."""
    import vllm

    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    limits = config.scheduler_config
    return {
        "k": "header",
        "cbtui_vllm": VERSION,
        "vllm": getattr(vllm, "__version__", ""),
        "model": _served_name(model),
        "path": str(model.model),
        "tokenizer": str(model.tokenizer),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(getattr(config.device_config, "device_type", "")),
        "block_size": scheduler.block_size,
        "num_blocks": cache.num_gpu_blocks,
        "groups": len(scheduler.kv_cache_config.kv_cache_groups),
        "max_model_len": model.max_model_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "chunked_prefill": bool(limits.enable_chunked_prefill),
        "async_scheduling": bool(limits.async_scheduling),
        "policy": str(limits.policy),
        "prefix_caching": bool(cache.enable_prefix_caching),
        "speculative": bool(config.speculative_config),
        "drafts": getattr(config.speculative_config, "num_speculative_tokens", None) or 0,
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "data_parallel": parallel.data_parallel_size,
        "is_rank": is_rank(config),
        "rank": rank_of(config),
        "pid": os.getpid(),
        "t": time.monotonic(),
        "wall": time.time(),
    }


def rank_of(config: Any) -> int:
    """This engine's number among a data-parallel server's."""
    parallel = config.parallel_config
    return int(getattr(parallel, "data_parallel_index", None) or parallel.data_parallel_rank or 0)


def is_rank(config: Any) -> bool:
    """Whether this engine is one of a data-parallel server's. Ranks that need not wait for each other are
    told that they are alone; their process has the name."""
    name = multiprocessing.current_process().name
    return config.parallel_config.data_parallel_size > 1 or name.startswith("EngineCore_DP")


def _served_name(model: Any) -> str:
    name = getattr(model, "served_model_name", None) or model.model
    return str(name[0] if isinstance(name, list | tuple) else name)
