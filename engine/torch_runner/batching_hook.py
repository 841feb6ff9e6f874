"""Looks into transformers' own continuous batching: what each of its steps puts through the model.

    with watched(seen.append):
        model.generate_batch(prompts, …)

`ContinuousBatchProcessor._generation_step` is where its row is finished and the model is about to be called;
the hook reads it there and changes nothing. Seen with transformers 5.24; a version that has no such place is
refused. The mask is there where its attention needs one (`sdpa`, `eager`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch


@dataclass(frozen=True)
class BatchedRequest:
    """A request in a step.

    Attributes:
        request_id: as it was added.
        q_len: its tokens in the row.
        position: place of the first of them in its own sequence.
        kv_len: keys its last token looks at.
        samples: whether a token is chosen after its last one.
    """

    request_id: str
    q_len: int
    position: int
    kv_len: int
    samples: bool


@dataclass(frozen=True)
class BatchedStep:
    """What one step put through the model, copied to the host.

    Attributes:
        step: its number, from 1.
        requests: in the order of the row.
        input_ids, position_ids: of the row `[1, T]`.
        cu_q: where each request's queries begin in the row, and the end.
        cu_k: where its keys begin on the key axis, by kind of attention layer.
        write_index, read_index: cells of its paged cache, one list a group of layers; empty where it reads
            and writes through a block table.
        logits_indices: places in the row whose logits are sampled.
        mask: `[T, keys]` by kind of attention layer, true where a query may look; empty: it builds none.
        waiting: ids of those that wait.
        sampled: the tokens chosen, one a request that samples, in their order; filled after the forward.
    """

    step: int
    requests: tuple[BatchedRequest, ...]
    input_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    cu_q: tuple[int, ...]
    cu_k: dict[str, tuple[int, ...]]
    write_index: tuple[tuple[int, ...], ...]
    read_index: tuple[tuple[int, ...], ...]
    logits_indices: tuple[int, ...]
    mask: dict[str, torch.Tensor]
    waiting: tuple[str, ...]
    sampled: tuple[int, ...] = field(default=())


@contextmanager
def watched(on_step: Callable[[BatchedStep], None]) -> Iterator[None]:
    """Tell of every step of any continuous batching in this process, in the thread that runs it.

    With asynchronous batching a step is told before its tokens are there: `sampled` is empty, and in
    `input_ids` -1 stands for a token of the step before.

    Raises:
        RuntimeError: this transformers has no place to look in.
    """
    try:
        from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

        step_itself = ContinuousBatchProcessor._generation_step
    except (ImportError, AttributeError):
        raise RuntimeError(
            "this version of transformers has no ContinuousBatchProcessor to look into"
        ) from None
    count = 0

    def step_and_tell(self: Any, model: Any) -> None:
        nonlocal count
        count += 1
        before = _read(self, count)
        step_itself(self, model)
        on_step(_with_tokens(before, self))

    ContinuousBatchProcessor._generation_step = step_and_tell
    try:
        yield
    finally:
        ContinuousBatchProcessor._generation_step = step_itself


def _read(processor: Any, step: int) -> BatchedStep:
    """The step that is about to run, from the very arguments of the model call."""
    ios = _pair(processor.inputs_and_outputs)
    inputs = ios.get_model_kwargs(use_padding=False)
    cu_q = _ints(inputs["cu_seq_lens_q"])
    cu_k = {kind: _ints(lengths) for kind, lengths in inputs["cu_seq_lens_k"].items()}
    positions = _ints(inputs["position_ids"])
    requests = []
    for number, future in enumerate(ios.requests_in_batch):
        start, stop = cu_q[number], cu_q[number + 1]
        requests.append(
            BatchedRequest(
                future.state.request_id,
                stop - start,
                positions[start],
                positions[stop - 1] + 1,
                future.has_new_token,
            )
        )
    num_sampled = sum(request.samples for request in requests)
    return BatchedStep(
        step,
        tuple(requests),
        _ints(inputs["input_ids"]),
        positions,
        cu_q,
        cu_k,
        tuple(_ints(cells) for cells in inputs["write_index"]),
        tuple(_ints(cells) for cells in inputs["read_index"]),
        _ints(inputs["logits_indices"])[:num_sampled],
        _masks(inputs["attention_mask"], tuple(cu_k)),
        tuple(processor.scheduler.waiting_requests),
    )


def _with_tokens(step: BatchedStep, processor: Any) -> BatchedStep:
    if processor.use_async_batching:
        return step
    num_sampled = sum(request.samples for request in step.requests)
    return replace(step, sampled=_ints(processor.inputs_and_outputs.output_ids[0, :num_sampled]))


def _pair(ios: Any) -> Any:
    """Of two sets of buffers that take turns, the one of this step."""
    return ios.io_pairs[ios.current_pair].host_io if hasattr(ios, "io_pairs") else ios


def _masks(mask: Any, kinds: tuple[str, ...]) -> dict[str, torch.Tensor]:
    if mask is None:
        return {}
    by_kind = mask if isinstance(mask, dict) else {kinds[0]: mask}
    return {kind: (one[0, 0] == 0).cpu() for kind, one in by_kind.items()}


def _ints(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.flatten().tolist())
