"""Steps that recur are run by replay, with the same tokens; what cannot be replayed runs as usual."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from engine.step.plan import Layout
from engine.torch_runner import LoadOptions, TorchRunner, replay
from engine.torch_runner.replay import Replayer
from tests.torch_runner.sequences import (
    ARENA,
    MIXED,
    assert_equals_alone,
    build,
    make_runner,
    run_step,
    three_sequences,
)

#: Enough decodes of the three sequences for every stage: as usual, recorded, both ways, replayed.
STEPS = [*MIXED, *[{0: None, 1: None, 2: None}] * 3]


@pytest.fixture
def started() -> Iterator[Any]:
    """`started(kind)`: a runner that has replayed nothing yet."""

    def start(kind: str = "llama", **options: Any) -> TorchRunner:
        runner = make_runner(kind, replay=True, **options)
        runner.loaded.causal.replay()
        return runner

    return start


def _replayer(runner: TorchRunner) -> Replayer:
    replayer = runner.loaded.causal.replayer
    assert replayer is not None
    return replayer


@pytest.mark.parametrize("at_home", [True, False])
@pytest.mark.parametrize("layout", ["ragged", "padded"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "gemma2"])
def test_replayed_steps_give_what_generate_gives_alone(
    started: Any, kind: str, layout: Layout, at_home: bool
) -> None:
    runner, sequences = started(kind), three_sequences(at_home=at_home)
    for feeds in STEPS:
        run_step(runner, feeds, sequences, layout)
    assert _replayer(runner).num_replayed == 1, _replayer(runner).reason
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_a_model_with_experts_gives_the_same_too(started: Any, layout: Layout) -> None:
    runner, sequences = started("gpt_oss"), three_sequences()
    for feeds in STEPS:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone("gpt_oss", sequences)


def test_a_dead_row_is_replayed_as_a_live_one(started: Any) -> None:
    runner, sequences = started(), three_sequences(at_home=True)
    for feeds in MIXED[:6]:
        run_step(runner, feeds, sequences, "padded")
    dead = [sequences[1].dead_row()]
    for _ in range(6):
        run_step(runner, {0: None, 2: None}, sequences, "padded", dead)
    assert _replayer(runner).num_replayed >= 1
    assert_equals_alone("llama", sequences)


def test_another_arena_is_written_and_read(started: Any) -> None:
    runner, sequences = started(), three_sequences()
    for feeds in STEPS:
        run_step(runner, feeds, sequences, "ragged")
    assert _replayer(runner).num_replayed == 1
    old = weakref.ref(runner._arenas[0])
    runner.start()
    runner.open_arena(0, ARENA)
    gc.collect()
    assert old() is None, "a recording must not keep an arena alive"
    again = three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, again, "ragged")
    assert [s.outputs for s in again] == [
        s.outputs[: len(a.outputs)] for s, a in zip(sequences, again, strict=True)
    ]
    assert_equals_alone("llama", again)


def test_a_replay_that_differs_is_never_used(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, sequences = started(), three_sequences()
    right = replay.Recording.replay
    monkeypatch.setattr(replay.Recording, "replay", lambda *args: right(*args) + 1e-3)
    for feeds in STEPS:
        run_step(runner, feeds, sequences, "ragged")
    assert _replayer(runner).num_replayed == 0
    assert "other logits" in _replayer(runner).reason
    assert_equals_alone("llama", sequences)


def test_a_replay_that_fails_is_never_used(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("no such operator")

    runner, sequences = started(), three_sequences()
    monkeypatch.setattr(replay.Recording, "replay", fail)
    for feeds in STEPS:
        run_step(runner, feeds, sequences, "ragged")
    assert "no such operator" in _replayer(runner).reason
    assert_equals_alone("llama", sequences)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda x: x * float(x.abs().max()) / float(x.abs().max()), "looks at numbers"),
        (lambda x: x if (x < 1e9).all() else -x, "looks at numbers"),
        (lambda x: x + 0 * torch.rand_like(x), "random"),
        (lambda x: x[x == x].view(x.shape), "looks at numbers"),
    ],
)
def test_a_model_that_looks_at_numbers_or_draws_them_runs_as_usual(
    started: Any, monkeypatch: pytest.MonkeyPatch, act: Any, reason: str
) -> None:
    runner, sequences = started(), three_sequences()
    mlp = runner.loaded.causal.model.model.layers[0].mlp
    forward = mlp.forward
    monkeypatch.setattr(mlp, "forward", lambda x: act(forward(x)))
    for feeds in STEPS:
        run_step(runner, feeds, sequences, "ragged")
    assert _replayer(runner).num_replayed == 0
    assert reason in _replayer(runner).reason
    assert_equals_alone("llama", sequences)


def test_recordings_make_room_for_each_other(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_BYTES", 1)
    monkeypatch.setattr(replay, "RECORD_AFTER", 0)
    runner, sequences = started(), three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, "ragged")
    assert len(_replayer(runner)._recordings) == 1
    assert_equals_alone("llama", sequences)


def test_long_rows_are_not_recorded(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_TOKENS", 2)
    runner, sequences = started(), three_sequences()
    for feeds in STEPS:
        run_step(runner, feeds, sequences, "ragged")
    assert not _replayer(runner)._recordings


def test_loading_says_how_decode_steps_are_run() -> None:
    assert make_runner("llama", replay=True).info.facts.decode_steps.startswith(
        "recorded once for each shape"
    )
    assert make_runner("llama").info.facts.decode_steps == ""


def test_loading_says_why_decode_steps_are_not_replayed() -> None:
    model = build("llama")
    mlp = model.model.layers[0].mlp
    forward = mlp.forward
    mlp.forward = lambda x: forward(x) + 0 * torch.rand_like(x)
    runner = TorchRunner(model, options=LoadOptions(num_threads=1))
    runner.start()
    said = runner.info.facts.decode_steps
    assert said.startswith("through the model's Python, because the model draws random numbers"), said
