"""vLLM's own scheduler without a model: its outputs are made up. Runs in vLLM's environment.

For what a whole server cannot be made to do at will: paused, reset, chunks of a prompt, other kinds of KV.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import torch
from cbtui_vllm.scheduler import RecordingScheduler
from vllm.engine.arg_utils import EngineArgs
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

#: What every kind of KV in here has in common.
HEADS = {"num_kv_heads": 3, "head_size": 64, "dtype": torch.float32}


def full(block_size: int = 16) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, **HEADS)


class Rig:
    """A scheduler that records to a file, and what drives it.

    Args:
        specs: the kinds of KV of the model's groups of layers.
        change: what to do to vLLM's configuration before the scheduler is made.
        engine: arguments of vLLM's engine.
    """

    def __init__(
        self,
        model: str,
        path: Path,
        specs: Sequence[KVCacheSpec] | None = None,
        *,
        num_blocks: int = 64,
        change: Callable[[Any], None] = lambda config: None,
        **engine: Any,
    ) -> None:
        self.path = path
        os.environ["CBTUI_VLLM_STREAM"] = str(path)
        usual = {"dtype": "float32", "enforce_eager": True, "max_model_len": 1024, "max_num_seqs": 3}
        config = EngineArgs(model=model, **(usual | engine)).create_engine_config()
        config.scheduler_config.async_scheduling = False
        config.cache_config.num_gpu_blocks = num_blocks
        config.cache_config.block_size = 16
        change(config)
        groups = [
            KVCacheGroupSpec([f"layer{number}"], spec)
            for number, spec in enumerate([full()] if specs is None else specs)
        ]
        kv = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        block_size, hash_size = resolve_kv_cache_block_sizes(kv, config)
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(hash_size, sha256)
        self.scheduler: Any = RecordingScheduler(
            vllm_config=config,
            kv_cache_config=kv,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=hash_size,
            log_stats=True,
        )

    @property
    def recorder(self) -> Any:
        return self.scheduler._recorder

    def add(
        self,
        name: str,
        length: int = 8,
        max_tokens: int = 20,
        *,
        start: int = 1,
        pooled: bool = False,
        **more: Any,
    ) -> None:
        """A request arrives; or, of a `resumable` one, another chunk. Its prompt counts up from `start`."""
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        if not pooled:
            sampling.update_from_generation_config({}, 0)
        request = Request(
            request_id=name,
            prompt_token_ids=list(range(start, start + length)),
            sampling_params=None if pooled else sampling,
            pooling_params=PoolingParams(task="embed") if pooled else None,
            block_hasher=self._hasher,
            **more,
        )
        self.scheduler.add_request(request)

    def turn(self, times: int = 1, *, pooled: bool = False) -> Any:
        """Steps; what the last one gave."""
        outputs: Any = None
        for _ in range(times):
            scheduled = self.scheduler.schedule()
            outputs = self.scheduler.update_from_output(scheduled, self._answer(scheduled, pooled))
        return outputs

    def lines(self) -> list[dict[str, Any]]:
        """End it; what was recorded."""
        self.scheduler.shutdown()
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def _answer(self, scheduled: Any, pooled: bool) -> ModelRunnerOutput:
        names = list(scheduled.num_scheduled_tokens)
        requests = [self.scheduler.requests.get(name) for name in names]
        tokens = [
            [7] if request is None else [] if request.is_prefill_chunk else [100 + request.num_tokens]
            for request in requests
        ]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[] if pooled else tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[torch.zeros(2) for _ in names] if pooled else None,
        )
