"""What the engine is compared with: transformers' `generate` in static waves, the tutorial's loop,
transformers' continuous batching. Each takes jobs and returns their output tokens, in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig, PreTrainedModel

from tests.benchmarks.workload import SLOTS, Job


def generate_in_waves(model: PreTrainedModel, jobs: list[Job], slots: int = SLOTS) -> list[list[int]]:
    """Static batching: waves, left padding, everyone decodes to the wave's largest number of tokens."""
    outputs = []
    for first in range(0, len(jobs), slots):
        wave = jobs[first : first + slots]
        longest = max(len(job.prompt) for job in wave)
        padding = [longest - len(job.prompt) for job in wave]
        ids = torch.tensor([[0] * n + job.prompt for n, job in zip(padding, wave, strict=True)])
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        most = max(job.num_tokens for job in wave)
        result = model.generate(
            ids, attention_mask=mask, max_new_tokens=most, do_sample=False, pad_token_id=0
        )[:, longest:].tolist()
        outputs += [row[: job.num_tokens] for row, job in zip(result, wave, strict=True)]
    return outputs


@dataclass
class Running:
    """A sequence of the tutorial's loop with a KV cache of its own: `[1, heads, tokens, dim]` a layer."""

    pending: list[int]
    num_tokens: int
    place: int
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    @property
    def num_cached(self) -> int:
        return self.keys[0].shape[2] if self.keys else 0


def tutorial_loop(model: PreTrainedModel, jobs: list[Job], slots: int = SLOTS) -> list[list[int]]:
    """The tutorial's continuous batching: one ragged row a step, caches joined and split each step."""
    waiting = [Running(list(job.prompt), job.num_tokens, place) for place, job in enumerate(jobs)]
    outputs: list[list[int]] = [[] for _ in jobs]
    running: list[Running] = []
    with torch.inference_mode():
        while waiting or running:
            while waiting and len(running) < slots:
                running.append(waiting.pop(0))
            for sequence, token in zip(running, tutorial_step(model, running), strict=True):
                sequence.outputs.append(token)
                sequence.pending = [token]
                if len(sequence.outputs) == sequence.num_tokens:
                    outputs[sequence.place] = sequence.outputs
            running = [s for s in running if len(s.outputs) < s.num_tokens]
    return outputs


def tutorial_step(model: PreTrainedModel, running: list[Running], keep: bool = True) -> list[int]:
    """One forward over all sequences: a dense mask, all logits.

    Args:
        keep: take the new keys and values back into each sequence's cache, as the loop does.
    """
    cached = [sequence.num_cached for sequence in running]
    fed = [len(sequence.pending) for sequence in running]
    total_cached, total = sum(cached), sum(fed)
    mask = torch.full((total, total_cached + total), torch.finfo(model.dtype).min, dtype=model.dtype)
    q_start = kv_start = 0
    positions: list[int] = []
    for n_cached, n_fed in zip(cached, fed, strict=True):
        rows = slice(q_start, q_start + n_fed)
        mask[rows, kv_start : kv_start + n_cached] = 0
        own = torch.full((n_fed, n_fed), torch.finfo(model.dtype).min, dtype=model.dtype).triu(1)
        mask[rows, total_cached + q_start : total_cached + q_start + n_fed] = own
        positions += range(n_cached, n_cached + n_fed)
        q_start, kv_start = q_start + n_fed, kv_start + n_cached
    cache = DynamicCache()
    with_cache = [sequence for sequence in running if sequence.keys]
    if with_cache:
        for layer in range(len(with_cache[0].keys)):
            keys = torch.cat([sequence.keys[layer] for sequence in with_cache], dim=2)
            values = torch.cat([sequence.values[layer] for sequence in with_cache], dim=2)
            cache.update(keys, values, layer)
    logits = model(
        input_ids=torch.tensor([list(itertools.chain.from_iterable(s.pending for s in running))]),
        position_ids=torch.tensor([positions]),
        attention_mask=mask[None, None],
        cache=cache,
    ).logits
    if keep:
        _take_back(cache, running, fed, total_cached)
    last = torch.tensor(list(itertools.accumulate(fed))) - 1
    return logits[0, last].argmax(dim=-1).tolist()


def _take_back(cache: DynamicCache, running: list[Running], fed: list[int], total_cached: int) -> None:
    for layer, stored in enumerate(cache.layers):
        new_keys = stored.keys[:, :, total_cached:].split(fed, dim=2)
        new_values = stored.values[:, :, total_cached:].split(fed, dim=2)
        for sequence, keys, values in zip(running, new_keys, new_values, strict=True):
            if layer == len(sequence.keys):
                sequence.keys.append(keys)
                sequence.values.append(values)
            else:
                sequence.keys[layer] = torch.cat([sequence.keys[layer], keys], dim=2)
                sequence.values[layer] = torch.cat([sequence.values[layer], values], dim=2)


class TransformersServer:
    """transformers' continuous batching in this process, started once and warm."""

    def __init__(self, manager: object) -> None:
        self._manager = manager

    def run(self, jobs: list[Job]) -> list[list[int]]:
        """Submit all jobs at once and wait for them."""
        manager = self._manager
        names = [manager.add_request(job.prompt, max_new_tokens=job.num_tokens) for job in jobs]
        results: dict[str, list[int]] = {}
        while len(results) < len(jobs):
            result = manager.get_result(timeout=300)
            if result is None:
                raise RuntimeError("transformers' continuous batching gave no answer for five minutes")
            if result.is_finished():
                results[result.request_id] = result.generated_tokens
        return [results[name] for name in names]


@contextmanager
def transformers_server(model: PreTrainedModel, slots: int = SLOTS) -> Iterator[TransformersServer]:
    """A server with as many slots, greedy, float32 or as the model is."""
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=300)
    settings = ContinuousBatchingConfig(
        max_requests_per_batch=slots, num_blocks=32, max_batch_tokens=256, allow_block_sharing=False
    )
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=settings, block=True, timeout=10
    ) as manager:
        yield TransformersServer(manager)
