"""As much of vLLM's scheduler as the recorder touches: no packages of its own, one block a request.

Its model's token at any position is the position's number. What it drafts stands in its requests'
`spec_token_ids`, and the arithmetic of what is computed is vLLM's own.

The real one is met by `make test-peers`; this is for what a real server cannot be made to do at will.
"""

from __future__ import annotations

import enum
import sys
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Status(enum.IntEnum):
    WAITING = 1
    RUNNING = 2
    FINISHED_STOPPED = 7
    FINISHED_ABORTED = 9
    FINISHED_ERROR = 11

    @staticmethod
    def get_finished_reason(status: Any) -> Any:
        return {7: "stop", 9: "abort", 11: "error"}.get(status)


class FullAttentionSpec:
    def __init__(self, block_size: int, *, dcp_sharded: bool = True) -> None:
        self.block_size = block_size
        self.dcp_sharded = dcp_sharded


class WindowedSpec:
    """One of the others: its blocks are given back."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size


class Request:
    """`stops_after`: it ends with so many output tokens, which no scheduler knows beforehand."""

    def __init__(
        self, request_id: str, prompt: list[int], max_tokens: int, stops_after: int | None = None
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt
        self.num_prompt_tokens = len(prompt)
        self.all_token_ids = list(prompt)
        self.max_tokens = max_tokens
        self.priority = 0
        self.num_preemptions = 0
        self.num_computed_tokens = 0
        self.num_output_placeholders = 0
        self.spec_token_ids: list[int] = []
        self.stops_after = stops_after
        self.status = Status.WAITING
        self.sampling_params = SimpleNamespace(
            temperature=0.0, top_p=1.0, top_k=0, seed=None, ignore_eos=True
        )

    @property
    def num_outputs(self) -> int:
        return len(self.all_token_ids) - self.num_prompt_tokens

    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def finish_reason(self) -> str | None:
        if self.num_outputs == self.stops_after:
            return "stop"
        return "length" if self.num_outputs >= self.max_tokens else None


class Scheduler:
    def __init__(self, vllm_config: Any, **kwargs: Any) -> None:
        self.slots = vllm_config.scheduler_config.max_num_seqs
        self.block_size = 16
        groups = [SimpleNamespace(kv_cache_spec=FullAttentionSpec(16))]
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=groups)
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
        self.num_drafts = getattr(vllm_config.speculative_config, "num_speculative_tokens", 0)
        self.pause_state = SimpleNamespace(name="UNPAUSED")

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
        counts, drafts = {}, {}
        for request in self.running:
            ahead = request.num_output_placeholders
            if (
                ahead
                and request.num_computed_tokens + 2 - ahead >= request.num_prompt_tokens + request.max_tokens
            ):
                continue  # its last token is on its way, even if all drafts are rejected
            num_tokens = len(request.all_token_ids) + ahead
            guessed, request.spec_token_ids = request.spec_token_ids, []
            if guessed:
                drafts[request.request_id] = guessed
            counts[request.request_id] = num_tokens + len(guessed) - request.num_computed_tokens
            request.num_computed_tokens = num_tokens + len(guessed)
            self._update_after_schedule(request, len(guessed))
        old = [name for name in counts if name not in {one.req_id for one in new}]
        cached = SimpleNamespace(req_ids=old, new_block_ids=[None] * len(old), resumed_req_ids=set())
        return SimpleNamespace(
            num_scheduled_tokens=counts,
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            preempted_req_ids=set(),
            scheduled_spec_decode_tokens=drafts,
        )

    def _update_after_schedule(self, request: Request, num_drafts: int) -> None:
        pass

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = []
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None:
                continue
            given = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[request_id]]
            drafts = scheduler_output.scheduled_spec_decode_tokens.get(request_id, ())
            rejected = len(drafts) + 1 - len(given)
            request.num_computed_tokens -= rejected
            kept = []
            while given and not request.is_finished():
                kept.append(given.pop(0))
                request.all_token_ids.append(kept[-1])
            request.num_output_placeholders = max(0, request.num_output_placeholders - rejected - len(kept))
            reason = request.finish_reason
            if reason:
                self.running.remove(request)
                del self.requests[request_id]
            outputs.append(SimpleNamespace(request_id=request_id, new_token_ids=kept, finish_reason=reason))
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
    """Schedules a token before the one before it is there; which tokens are drafted it does not know."""

    def _update_after_schedule(self, request: Request, num_drafts: int) -> None:
        request.num_output_placeholders += 1 + num_drafts
        request.spec_token_ids = [-1] * self.num_drafts


class DiffusionScheduler(Scheduler):
    pass


class DiffusionAsyncScheduler(AsyncScheduler):
    pass


def config(*, num_drafts: int = 0, **limits: Any) -> Any:
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
        speculative_config=SimpleNamespace(num_speculative_tokens=num_drafts) if num_drafts else None,
    )


def install(patch: pytest.MonkeyPatch) -> None:
    """Make `import vllm…` find this."""
    sched = "vllm.v1.core.sched"
    for name in ("vllm", "vllm.v1", "vllm.v1.core", sched):
        patch.setitem(sys.modules, name, ModuleType(name))
    for name, content in {
        f"{sched}.scheduler": {"Scheduler": Scheduler},
        f"{sched}.async_scheduler": {"AsyncScheduler": AsyncScheduler},
        f"{sched}.diffusion_scheduler": {
            "DiffusionScheduler": DiffusionScheduler,
            "DiffusionAsyncScheduler": DiffusionAsyncScheduler,
        },
        "vllm.v1.request": {"RequestStatus": Status},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        patch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        patch.setattr(sys.modules[parent], child, module, raising=False)
    patch.delitem(sys.modules, "cbtui_vllm.scheduler", raising=False)


def turn(scheduler: Any) -> Any:
    """One step of vLLM's engine."""
    return take_in(scheduler, scheduler.schedule())


def take_in(scheduler: Any, output: Any) -> Any:
    """What a scheduled step brought, taken in."""
    return scheduler.update_from_output(output, answer(scheduler, output))


def answer(scheduler: Any, output: Any, rights: dict[str, int] | None = None) -> Any:
    """What the model says to a step.

    Args:
        rights: how many of a request's drafts are right, where the scheduler does not know them.
    """
    names = list(output.num_scheduled_tokens)
    sampled = []
    for name in names:
        drafts = output.scheduled_spec_decode_tokens.get(name, [])
        request = scheduler.requests.get(name)
        first = len(request.all_token_ids) if request else 0
        right = min((rights or {}).get(name, 0), len(drafts))
        while right < len(drafts) and drafts[right] == first + right:
            right += 1
        sampled.append(list(range(first, first + right + 1)))
    places = {name: place for place, name in enumerate(names)}
    return SimpleNamespace(req_ids=names, req_id_to_index=places, sampled_token_ids=sampled)


class Ahead:
    """vLLM's engine with steps in flight: asynchronous scheduling, or a pipeline of several stages."""

    def __init__(self, scheduler: Any, depth: int = 2) -> None:
        self._scheduler = scheduler
        self._depth = depth
        self._in_flight: deque[Any] = deque()

    def turn(self) -> None:
        """Schedule as far ahead as may be; then take in the oldest step."""
        while len(self._in_flight) < self._depth:
            output = self._scheduler.schedule()
            if not output.num_scheduled_tokens:
                break
            self._in_flight.append(output)
        if self._in_flight:
            take_in(self._scheduler, self._in_flight.popleft())

    def drain(self) -> None:
        while self._scheduler.requests or self._in_flight:
            self.turn()
