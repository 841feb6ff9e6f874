"""The engine itself, in this process."""

from __future__ import annotations

import torch
from msgspec import structs

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.runner import Ready
from engine.session import config_for, drain
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, PlanRow
from engine.stream.records import StepRecord
from engine.torch_runner import LoadOptions, TorchRunner
from engine.torch_runner.prepack import PackedLinear, PackedProduct
from tests.benchmarks.workload import SLOTS, Job, model_folder


def started(dtype: str = "float32", threads: int = 1) -> TorchRunner:
    """A runner with the default model."""
    runner = TorchRunner(model_folder(), options=LoadOptions(dtype=dtype, num_threads=threads))
    runner.start()
    last = runner.poll()[-1]
    assert isinstance(last, Ready), last
    return runner


def run_jobs(
    runner: TorchRunner, jobs: list[Job], mode: str = "continuous", slots: int = SLOTS
) -> tuple[list[list[int]], int]:
    """All jobs through an engine; their output tokens in order, and the number of steps."""
    config = config_for(EngineConfig(mode=mode, max_num_seqs=slots), runner.info)
    engine = Engine(config, runner, runner.info)
    names = [
        engine.add_request(job.prompt, SamplingParams(max_tokens=job.num_tokens, ignore_eos=True))
        for job in jobs
    ]
    outputs: dict[str, list[int]] = {name: [] for name in names}
    steps = 0
    for record in drain(engine):
        if isinstance(record, StepRecord):
            steps += 1
            for segment in record.segments:
                if segment.sampled is not None:
                    outputs[segment.request_id].append(segment.sampled)
    return [outputs[name] for name in names], steps


#: Cells of a slot in the step benchmarks: more than any of them needs.
HOME_TOKENS = 1088


def open_arena(runner: TorchRunner, slots: int, block_size: int = 16) -> None:
    """An arena with a home run of `HOME_TOKENS` a slot."""
    runner.open_arena(0, ArenaShape(slots * HOME_TOKENS // block_size, block_size, slots))


def decode_plan(num_sequences: int, num_cached: int, block_size: int = 16) -> Plan:
    """A step of sequences at home that decode one token each beside `num_cached` cached ones."""
    home = HOME_TOKENS // block_size
    rows = [
        PlanRow(
            request_id=str(slot),
            slot=slot,
            kind="decode",
            token_ids=[100 + slot],
            start_position=num_cached,
            kv_len=num_cached + 1,
            block_ids=[slot * home + i for i in range(-(-(num_cached + 1) // block_size))],
            sampling=SamplingParams(),
        )
        for slot in range(num_sequences)
    ]
    return Plan(epoch=1, arena_id=0, step=1, layout="ragged", rows=rows)


def scattered(plan: Plan, num_blocks: int) -> Plan:
    """The same step with its blocks anywhere in an arena of that many."""
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).tolist()
    rows = [structs.replace(row, block_ids=[order.pop() for _ in row.block_ids]) for row in plan.rows]
    return structs.replace(plan, rows=rows)


class Products:
    """The prepacked matrix products of a model and nothing else: what no step can be faster than."""

    def __init__(self, runner: TorchRunner) -> None:
        self._dtype = runner.loaded.causal.dtype
        self._products: dict[PackedProduct, int] = {}
        for module in runner.loaded.causal.model.modules():
            forward = module.__dict__.get("forward")
            if isinstance(forward, PackedLinear):
                self._products[forward.packed] = module.in_features

    def run(self, num_rows: int) -> None:
        """Every product once, for that many rows."""
        inputs = {
            width: torch.zeros(1, num_rows, width, dtype=self._dtype)
            for width in set(self._products.values())
        }
        with torch.inference_mode():
            for product, width in self._products.items():
                product.product(inputs[width])
