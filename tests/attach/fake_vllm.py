"""As much of vLLM's scheduler as the recorder touches: no packages of its own, one block a request.

The real one is met by `make test-peers`; this is for what a real server cannot be made to do at will.
"""

from __future__ import annotations

import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Status(enum.IntEnum):
    WAITING = 1
    RUNNING = 2


class Request:
    def __init__(self, request_id: str, prompt: list[int], max_tokens: int) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt
        self.num_prompt_tokens = len(prompt)
        self.all_token_ids = list(prompt)
        self.max_tokens = max_tokens
        self.priority = 0
        self.num_preemptions = 0
        self.num_computed_tokens = 0
        self.status = Status.WAITING
        self.sampling_params = SimpleNamespace(
            temperature=0.0, top_p=1.0, top_k=0, seed=None, ignore_eos=True
        )

    def is_finished(self) -> bool:
        return len(self.all_token_ids) - self.num_prompt_tokens >= self.max_tokens


class Scheduler:
    def __init__(self, vllm_config: Any, **kwargs: Any) -> None:
        self.slots = vllm_config.scheduler_config.max_num_seqs
        self.block_size = 16
        spec = SimpleNamespace(head_size=64, sliding_window=None)
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)])
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.tables: dict[str, int] = {}
        self.num_made = 0
        free = lambda: 99 - len(self.running)  # noqa: E731
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(get_num_free_blocks=free),
            get_block_ids=lambda request_id: ([self.tables[request_id]],),
        )
        self.was_shut_down = False

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), len(self.waiting)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        new = []
        while self.waiting and len(self.running) < self.slots:
            request = self.waiting.pop(0)
            request.status = Status.RUNNING
            self.running.append(request)
            self.num_made += 1
            self.tables[request.request_id] = self.num_made
            new.append(SimpleNamespace(req_id=request.request_id, block_ids=([self.num_made],)))
        counts = {}
        for request in self.running:
            counts[request.request_id] = len(request.all_token_ids) - request.num_computed_tokens
            request.num_computed_tokens = len(request.all_token_ids)
        old = [name for name in counts if name not in {one.req_id for one in new}]
        cached = SimpleNamespace(req_ids=old, new_block_ids=[None] * len(old), resumed_req_ids=set())
        return SimpleNamespace(
            num_scheduled_tokens=counts,
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            preempted_req_ids=set(),
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = []
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None:
                continue
            token = len(request.all_token_ids)
            request.all_token_ids.append(token)
            reason = "length" if request.is_finished() else None
            if reason:
                self.running.remove(request)
                del self.requests[request_id]
            outputs.append(
                SimpleNamespace(request_id=request_id, new_token_ids=[token], finish_reason=reason)
            )
        return {0: SimpleNamespace(outputs=outputs)}

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        for name in list(self.requests) if request_ids is None else request_ids:
            request = self.requests.pop(name, None)
            if request is not None:
                (self.running if request in self.running else self.waiting).remove(request)
        return []

    def shutdown(self) -> None:
        self.was_shut_down = True


class AsyncScheduler(Scheduler):
    pass


def config(**limits: Any) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(
            model="m", tokenizer="m", served_model_name=["served"], dtype="torch.float32", max_model_len=64
        ),
        cache_config=SimpleNamespace(num_gpu_blocks=100, enable_prefix_caching=False),
        device_config=SimpleNamespace(device_type="cpu"),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, data_parallel_rank=0
        ),
        scheduler_config=SimpleNamespace(
            **{
                "max_num_seqs": 2,
                "max_num_batched_tokens": 32,
                "enable_chunked_prefill": True,
                "async_scheduling": False,
                "policy": "fcfs",
                **limits,
            }
        ),
        speculative_config=None,
    )


def install(patch: pytest.MonkeyPatch) -> None:
    """Make `import vllm…` find this."""
    names = ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched")
    for name in names:
        patch.setitem(sys.modules, name, ModuleType(name))
    for name, cls in (("scheduler", Scheduler), ("async_scheduler", AsyncScheduler)):
        module = ModuleType(f"{names[-1]}.{name}")
        setattr(module, cls.__name__, cls)
        patch.setitem(sys.modules, module.__name__, module)
    patch.delitem(sys.modules, "cbtui_vllm.scheduler", raising=False)


def turn(scheduler: Any) -> Any:
    """One step of vLLM's engine."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    return scheduler.update_from_output(output, SimpleNamespace(req_ids=names))
