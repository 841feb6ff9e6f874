"""The runner's contract: events, replies, and failures after which it goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.request import SamplingParams
from engine.runner import (
    Encoded,
    ForwardError,
    LoadFailed,
    Loading,
    PromptInput,
    Ready,
    RunnerDied,
    RunnerError,
)
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, PlanRow
from engine.torch_runner import LoadOptions, TorchRunner
from tests.torch_runner.sequences import ARENA, VOCAB, build, make_runner, run_step, three_sequences
from tests.torch_runner.test_torch_load import make_tokenizer


def _plan(tokens: list[int], arena_id: int = 0, start: int = 0) -> Plan:
    row = PlanRow(
        request_id="r0",
        slot=0,
        kind="prefill",
        token_ids=tokens,
        start_position=start,
        kv_len=start + len(tokens),
        block_ids=list(range(40)),
        sampling=SamplingParams(),
        n_top=3,
    )
    return Plan(epoch=4, arena_id=arena_id, step=17, layout="ragged", rows=[row])


def _small(**options: Any) -> TorchRunner:
    return TorchRunner(
        build("llama"), make_tokenizer(), LoadOptions(dtype="float64", num_threads=1, **options)
    )


def test_a_start_reports_progress_and_ends_with_ready(tmp_path: Any) -> None:
    runner = _small(cache_dir=tmp_path)
    runner.start()
    *progress, last = runner.poll()
    assert progress and all(isinstance(event, Loading) for event in progress)
    assert last == Ready(runner.info, epoch=1)
    assert runner.poll() == []
    runner.start()
    assert runner.poll() == [Ready(runner.info, epoch=2)]


def test_a_failed_load_is_an_event() -> None:
    runner = TorchRunner("/no/such/folder")
    runner.start()
    last = runner.poll()[-1]
    assert isinstance(last, LoadFailed)
    assert "/no/such/folder" in last.message
    with pytest.raises(RunnerDied):
        runner.run(_plan([1]))


def test_encoding_answers_with_its_ticket(tmp_path: Any) -> None:
    runner = _small(cache_dir=tmp_path)
    runner.start()
    runner.poll()
    runner.encode(5, [PromptInput("France is"), PromptInput("")])
    (answer,) = runner.poll()
    assert isinstance(answer, Encoded)
    assert answer.ticket == 5
    assert [prompt.token_ids for prompt in answer.prompts] == [[7, 8], []]


def test_a_reply_carries_times_tokens_and_the_likeliest() -> None:
    reply = make_runner("gpt2").run(_plan([3, 1, 4]))
    assert (reply.epoch, reply.step) == (4, 17)
    assert reply.forward_s > 0 and reply.sample_s > 0
    (token,) = reply.sampled
    assert token is not None
    assert token.top[0] == (token.token_id, token.logprob)
    assert len(token.top) == 3


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (_plan([3, VOCAB]), "vocabulary"),
        (_plan([-1]), "vocabulary"),
        (_plan([1] * 129), "positions"),
        (_plan([1], start=128), "positions"),
        (Plan(epoch=1, arena_id=0, step=1, layout="ragged", rows=[]), "at least one row"),
    ],
)
def test_a_step_that_cannot_be_run_fails_and_the_runner_goes_on(plan: Plan, words: str) -> None:
    runner = make_runner("gpt2")
    with pytest.raises(ForwardError, match=words):
        runner.run(plan)
    assert runner.run(_plan([3, 1, 4])).sampled[0] is not None


def test_an_exception_in_the_model_is_a_forward_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner("gpt2")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("out of luck\nand of patience")

    monkeypatch.setattr(runner.loaded.causal.model.transformer, "forward", fail)
    with pytest.raises(ForwardError, match=r"step 17 failed: out of luck$"):
        runner.run(_plan([3]))
    monkeypatch.undo()
    assert runner.run(_plan([3])).sampled[0] is not None


def test_a_failed_step_leaves_no_trace_in_later_ones() -> None:
    runner = make_runner("gpt2")
    head = runner.loaded.causal.model.lm_head.weight
    kept = head.detach().clone()
    expected = make_runner("gpt2").run(_plan([3, 1])).sampled
    with torch.no_grad():
        head.fill_(torch.nan)
    reply = runner.run(_plan([3, 1]))
    assert reply.sampled == [None] and "not finite" in reply.faults[0]
    with torch.no_grad():
        head.copy_(kept)
    assert runner.run(_plan([3, 1])).sampled == expected


def test_an_arena_must_be_open() -> None:
    with pytest.raises(RunnerError, match="arena 3 is not open"):
        make_runner("gpt2").run(_plan([1], arena_id=3))


def test_opening_an_arena_again_keeps_it_and_another_shape_replaces_it() -> None:
    runner, sequences = make_runner("gpt2"), three_sequences()
    run_step(runner, {0: None}, sequences, "ragged")
    first = runner._arenas[0]
    runner.open_arena(0, ARENA)
    assert runner._arenas[0] is first
    runner.open_arena(0, ArenaShape(3, 4, 2))
    assert runner._arenas[0].shape.num_blocks == 3


def test_an_arena_that_does_not_fit_is_an_error_of_one_sentence() -> None:
    runner = make_runner("gpt2")
    with pytest.raises(RunnerError, match="no memory"):
        runner.open_arena(1, ArenaShape(10**12, 16, 4))
    assert runner.run(_plan([3])).sampled[0] is not None


def test_closing_twice_is_fine_and_ends_it(tmp_path: Any) -> None:
    runner = _small(cache_dir=tmp_path)
    runner.start()
    runner.close()
    runner.close()
    with pytest.raises(RunnerDied):
        runner.run(_plan([1]))
