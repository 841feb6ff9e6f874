"""What a server says of itself at the head of a stream. Reads vLLM's configuration, decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import Any

#: Of the lines; a reader refuses a newer one.
VERSION = 2
#: The vLLMs this was tried with.
TRIED = ("0.32.0",)


@dataclass(frozen=True)
class ShownGroup:
    """The group of KV blocks that is shown, where a model has several.

    Attributes:
        number: among the groups; None: the model has none (it keeps no keys).
        is_windowed: blocks are given back while a request runs, without a word.
        block_size: tokens a block of it holds.
    """

    number: int | None
    is_windowed: bool
    block_size: int


def shown_group(scheduler: Any) -> ShownGroup:
    """One whose layers keep every key, if there is one: its tables only grow."""
    specs = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
    if not specs:
        return ShownGroup(None, False, scheduler.block_size)
    number = next((at for at, spec in enumerate(specs) if _keeps_all(spec)), None)
    shown = specs[number or 0]
    # Of a group whose keys are spread over several workers, each holds its part of a block.
    config = getattr(scheduler, "vllm_config", None)
    parts = getattr(config.parallel_config, "decode_context_parallel_size", 1) if config else 1
    size = shown.block_size * (parts if getattr(shown, "dcp_sharded", False) else 1)
    return ShownGroup(number or 0, number is None, size)


def _keeps_all(spec: Any) -> bool:
    of_layers = getattr(spec, "kv_cache_specs", None)  # layers of one kind, each with its own sizes
    if of_layers:
        return all(_keeps_all(one) for one in of_layers.values())
    # One kind of full attention gives back what lies between the prompt and a window.
    is_full = any(kind.__name__ == "FullAttentionSpec" for kind in type(spec).__mro__)
    return is_full and getattr(spec, "rswa_window", None) is None


def facts_of(config: Any, scheduler: Any) -> dict[str, Any]:
    """The header's fields."""
    import vllm

    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    limits = config.scheduler_config
    return {
        "k": "header",
        "cbtui_vllm": VERSION,
        "vllm": getattr(vllm, "__version__", ""),
        "tried": TRIED,
        "model": _served_name(model),
        "path": str(model.model),
        "tokenizer": str(model.tokenizer),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(getattr(config.device_config, "device_type", "")),
        "block_size": shown_group(scheduler).block_size,
        "num_blocks": cache.num_gpu_blocks,
        "groups": len(scheduler.kv_cache_config.kv_cache_groups),
        "max_model_len": model.max_model_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        # What the scheduler itself keeps to, where that is less.
        "max_active": getattr(scheduler, "max_num_active_reqs", limits.max_num_seqs),
        "max_scheduled": getattr(scheduler, "max_num_scheduled_tokens", limits.max_num_batched_tokens),
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
