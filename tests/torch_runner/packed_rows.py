"""The same requests through transformers' own continuous batching and through this engine, step by step."""

from __future__ import annotations

import msgspec
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.runner import ModelRunner
from engine.session import drain
from engine.step.mask import query_runs
from engine.stream.records import StepRecord
from engine.torch_runner.batching_hook import BatchedStep, watched

#: (prompt ids, output tokens).
Job = tuple[list[int], int]


def by_transformers(
    model: PreTrainedModel, jobs: list[Job], *, slots: int, budget: int, num_blocks: int = 64
) -> tuple[list[list[int]], list[BatchedStep]]:
    """All jobs at once: nothing runs before the last one is there."""
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=1)
    settings = ContinuousBatchingConfig(
        max_requests_per_batch=slots,
        max_batch_tokens=budget,
        num_blocks=num_blocks,
        block_size=32,
        allow_block_sharing=False,
        use_cuda_graph=False,
    )
    steps: list[BatchedStep] = []
    manager = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=settings
    )
    try:
        names = [
            manager.add_request(list(prompt), request_id=f"job-{number:03}", max_new_tokens=num_tokens)
            for number, (prompt, num_tokens) in enumerate(jobs)
        ]
        found: dict[str, list[int]] = {}
        with watched(steps.append):
            manager.start()
            while len(found) < len(jobs):
                result = manager.get_result(timeout=600)
                assert result is not None
                if result.is_finished():
                    assert result.error is None, result.error
                    found[result.request_id] = list(result.generated_tokens)
            manager.stop(block=True)
    finally:
        manager.destroy()
    return [found[name] for name in names], steps


def by_us(
    runner: ModelRunner, jobs: list[Job], *, slots: int, budget: int, mode: str = "chunked"
) -> tuple[list[list[int]], list[StepRecord]]:
    """The same through this engine; request `number` is `job-number`."""
    config = EngineConfig(mode=mode, max_num_seqs=slots, max_num_batched_tokens=budget, num_blocks=512)
    engine = Engine(config, runner, runner.info)
    names = [
        engine.add_request(list(prompt), SamplingParams(max_tokens=num_tokens, ignore_eos=True))
        for prompt, num_tokens in jobs
    ]
    steps = [record for record in drain(engine) if isinstance(record, StepRecord)]
    outputs: dict[str, list[int]] = {name: [] for name in names}
    for record in steps:
        for segment in record.segments:
            if segment.sampled is not None:
                outputs[segment.request_id].append(segment.sampled)
    return [outputs[name] for name in names], steps


def row_of(record: StepRecord) -> tuple[list[int], list[int]]:
    """Input ids and positions of a record's row."""
    ids = [token for segment in record.segments for token in segment.token_ids]
    positions = [
        place
        for segment in record.segments
        for place in range(segment.position, segment.position + segment.q_len)
    ]
    return ids, positions


def mask_of(record: StepRecord) -> torch.Tensor:
    """`[T, keys]`, true where a query may look."""
    mask = torch.zeros(record.shape[1], record.num_keys, dtype=torch.bool)
    for run in query_runs(record.segments, record.shape):
        mask[run.column, run.start : run.stop] = True
    return mask


def in_order(record: StepRecord, order: list[str]) -> StepRecord:
    """The same step with its sequences in another order: what differs between engines and changes nothing."""
    segments, q_start, kv_start = [], 0, 0
    by_name = {segment.request_id: segment for segment in record.segments}
    for name in order:
        one = by_name[name]
        segments.append(msgspec.structs.replace(one, q_start=q_start, kv_start=kv_start))
        q_start, kv_start = q_start + one.q_len, kv_start + one.kv_len
    return msgspec.structs.replace(record, segments=tuple(segments))


def assert_same_step(theirs: BatchedStep, ours: StepRecord, names: dict[str, str]) -> bool:
    """Their `input_ids`, `position_ids`, mask, sampled places and tokens are our record's.

    Args:
        names: of their requests, ours.

    Returns:
        Whether the sequences lay in the same order, too.
    """
    order = [names[request.request_id] for request in theirs.requests]
    assert set(order) == {segment.request_id for segment in ours.segments}, theirs.step
    record = in_order(ours, order)
    ids, positions = row_of(record)
    assert ids == list(theirs.input_ids), theirs.step
    assert positions == list(theirs.position_ids), theirs.step
    (mask,) = theirs.mask.values()
    assert torch.equal(mask, mask_of(record)), theirs.step
    sampled = [segment for segment in record.segments if segment.sampled is not None]
    assert [one.q_start + one.q_len - 1 for one in sampled] == list(theirs.logits_indices), theirs.step
    assert [one.sampled for one in sampled] == list(theirs.sampled), theirs.step
    return order == [segment.request_id for segment in ours.segments]
