"""transformers' own continuous batching, looked into: its row, its mask, its cells."""

from __future__ import annotations

import pytest
import torch
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

from engine.torch_runner.batching_hook import BatchedStep, watched
from tests.torch_runner.packed_rows import Job, assert_same_step, by_transformers, by_us
from tests.torch_runner.sequences import build, make_runner

JOBS: list[Job] = [
    ([1, 2, 3, 4, 5], 3),
    ([7, 8, 9, 10, 11], 8),
    ([13, 3, 33, 3, 43, 3, 3], 14),
    ([9, 19, 29, 39, 49, 59, 69, 79, 89, 9], 5),
    ([4, 5, 6], 7),
    ([8, 18], 6),
]


@pytest.fixture(scope="module")
def theirs() -> tuple[list[list[int]], list[BatchedStep]]:
    model = build("llama")
    model.set_attn_implementation("sdpa")
    return by_transformers(model, JOBS, slots=3, budget=64, num_blocks=8)


def test_their_row_and_mask_at_every_step_are_ours(theirs: tuple[list[list[int]], list[BatchedStep]]) -> None:
    outputs, steps = theirs
    own_outputs, own_steps = by_us(make_runner("llama", arenas=()), JOBS, slots=3, budget=64)
    assert outputs == own_outputs
    assert len(steps) == len(own_steps)
    names = {f"job-{number:03}": name for number, name in enumerate(_names(own_steps))}
    same_order = [assert_same_step(a, b, names) for a, b in zip(steps, own_steps, strict=True)]
    # A new request stands behind the running ones there, in the slot that became free here.
    assert same_order[:3] == [True] * 3 and not same_order[3]


def test_a_cell_is_read_as_it_was_written(theirs: tuple[list[list[int]], list[BatchedStep]]) -> None:
    written: dict[str, list[int]] = {}
    for step in theirs[1]:
        (cells,), (read,) = step.write_index, step.read_index
        assert len(cells) == len(step.input_ids) == step.cu_q[-1]
        start = 0
        for number, request in enumerate(step.requests):
            own = written.setdefault(request.request_id, [])
            assert len(own) == request.position
            own += cells[step.cu_q[number] : step.cu_q[number + 1]]
            stop = start + request.kv_len
            if read:  # empty where nothing is cached yet
                assert list(read[start:stop]) == own
            start = stop
        assert start == step.cu_k["full_attention"][-1]
    assert {name: len(cells) for name, cells in written.items()} == {
        f"job-{number:03}": len(prompt) + tokens - 1 for number, (prompt, tokens) in enumerate(JOBS)
    }


def test_those_that_wait(theirs: tuple[list[list[int]], list[BatchedStep]]) -> None:
    assert theirs[1][0].waiting == ("job-003", "job-004", "job-005")
    assert theirs[1][-1].waiting == ()


def test_a_prompt_longer_than_the_budget_comes_in_pieces() -> None:
    model = build("llama")
    model.set_attn_implementation("sdpa")
    jobs: list[Job] = [(list(range(1, 40)), 3)]
    outputs, steps = by_transformers(model, jobs, slots=2, budget=16, num_blocks=8)
    own_outputs, own_steps = by_us(make_runner("llama", arenas=()), jobs, slots=2, budget=16)
    assert outputs == own_outputs
    assert [step.requests[0].q_len for step in steps] == [16, 16, 7, 1, 1]
    assert [step.sampled == () for step in steps] == [True, True, False, False, False]
    for a, b in zip(steps, own_steps, strict=True):
        assert_same_step(a, b, {"job-000": own_steps[0].segments[0].request_id})


def test_nothing_is_left_behind() -> None:
    before = ContinuousBatchProcessor._generation_step

    def fail() -> None:
        with watched(lambda step: None):
            assert ContinuousBatchProcessor._generation_step is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ContinuousBatchProcessor._generation_step is before


def test_a_transformers_without_the_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ContinuousBatchProcessor, "_generation_step")
    with pytest.raises(RuntimeError, match="no ContinuousBatchProcessor"), watched(lambda step: None):
        pass


def _names(records: list) -> list[str]:
    """Request ids in order of arrival."""
    return [request.request_id for record in records for request in record.events.submitted]


def test_masks_are_copies(theirs: tuple[list[list[int]], list[BatchedStep]]) -> None:
    """The tensors they come from are used again at the next step."""
    first, second = (next(iter(step.mask.values())) for step in theirs[1][:2])
    assert first.shape == (17, 17) and second.shape == (3, 20)
    assert torch.equal(first[:5, :5], torch.ones(5, 5).tril().bool())
