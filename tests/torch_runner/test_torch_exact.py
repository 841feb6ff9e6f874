"""Exact mode: not a bit of a logit depends on who else is in the batch, nor on the layout."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.runner import LoadFailed, ModelLoadError, PromptInput
from engine.step.geometry import ArenaShape
from engine.step.plan import Layout
from engine.torch_runner import LoadOptions, TorchRunner
from engine.torch_runner.exact import ROWS, ExactProduct
from engine.torch_runner.load import adopt_model
from tests.torch_runner.sequences import MIXED, Sequence, run_step, three_sequences
from tests.torch_runner.zoo import config

Logits = list[torch.Tensor]
LAYOUTS: list[Layout] = ["ragged", "padded"]


def build(kind: str, **changes: Any) -> PreTrainedModel:
    """A small model in float32, as wide as real ones are: in multiples of what a vector register holds."""
    settings = config(kind)
    if "intermediate_size" in settings.to_dict():
        settings.intermediate_size = 64
    for name, value in changes.items():
        setattr(settings, name, value)
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(
        settings, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def started(model: PreTrainedModel | str, **options: Any) -> TorchRunner:
    runner = TorchRunner(model, options=LoadOptions(**{"exact": True} | options))
    runner.start()
    failed = [event for event in runner.poll() if isinstance(event, LoadFailed)]
    assert not failed, failed
    return runner


class Listener:
    """Keeps the logits of every sampled place, by slot and output, in the order they come."""

    def __init__(self, runner: TorchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: dict[int, Logits] = {}
        causal = runner.loaded.causal
        plain = causal.logits

        def logits(step: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            output = plain(step, *args, **kwargs)
            slots = [step.plan.rows[number].slot for number in step.geometry.sampled_rows]
            for slot, row in zip(slots, output, strict=True):
                self.heard.setdefault(slot, []).append(row.clone())
            return output

        monkeypatch.setattr(causal, "logits", logits)

    def take(self) -> dict[int, Logits]:
        heard, self.heard = self.heard, {}
        return heard


def same(a: Logits, b: Logits) -> bool:
    return len(a) == len(b) > 0 and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def runs(
    runner: TorchRunner,
    listener: Listener,
    make: Any,
    feeds: list[dict[int, int | None]],
    shape: ArenaShape,
    slots: Iterable[int],
) -> tuple[list[Logits], list[dict[int, Logits]]]:
    """Logits of each sequence alone, and of all of them together, in both layouts."""
    solo = []
    for slot in slots:
        runner.open_arena(slot + 1, shape)
        sequences = make(slot)
        for step in feeds:
            if slot in step:
                run_step(runner, {slot: step[slot]}, sequences, "ragged", arena=slot + 1)
        solo.append(listener.take()[slot])
    together = []
    for number, layout in enumerate(LAYOUTS):
        runner.open_arena(100 + number, shape)
        sequences = make(None)
        for step in feeds:
            run_step(runner, step, sequences, layout, arena=100 + number)
        together.append(listener.take())
    return solo, together


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "gemma2", "gemma3", "phi3", "qwen3", "opt"])
def test_alone_batched_and_padded_logits_are_bitwise_equal(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = started(build(kind))
    assert runner.info.exact
    listener = Listener(runner, monkeypatch)
    shape = ArenaShape(40, 4, 4)
    solo, together = runs(runner, listener, lambda _: three_sequences(), MIXED, shape, range(3))
    for layout in together:
        assert all(same(solo[slot], layout[slot]) for slot in range(3))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_held_slot_beside_it_changes_no_bit(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = started(build("llama"))
    listener = Listener(runner, monkeypatch)
    logits = []
    for with_held in (False, True):
        runner.open_arena(int(with_held), ArenaShape(40, 4, 4))
        sequences = three_sequences()
        for _ in range(4):
            held = [sequences[2].dead_row()] if with_held and sequences[2].outputs else []
            feeds: dict[int, int | None] = {0: None} if not with_held or held else {0: None, 2: None}
            run_step(runner, feeds, sequences, layout, held, arena=int(with_held))
        logits.append(listener.take()[0])
    assert same(*logits)


@pytest.mark.model
def test_eight_requests_on_the_default_model_are_bitwise_equal_alone_batched_and_padded(
    default_model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = started(str(default_model_path))
    listener = Listener(runner, monkeypatch)
    texts = ["The capital of France is", "Once upon a time, in a land far, far away, there was a", "1 2 3"]
    runner.encode(1, [PromptInput(text) for text in texts])
    prompts = [prompt.token_ids for prompt in runner.poll()[-1].prompts]  # type: ignore[union-attr]

    def make(alone: int | None) -> list[Sequence]:
        # Other blocks alone than together: where a key lies must not matter either.
        order = range(8) if alone is None else range(7, -1, -1)
        return [
            Sequence(slot, prompts[slot % 3] * (1 + slot // 3), [place + 8 * i for i in range(16)])
            for slot, place in enumerate(order)
        ]

    #: The first six whole, the other two in pieces beside the decodes of the six, then all decode.
    feeds: list[dict[int, int | None]] = [
        dict.fromkeys(range(6)),
        {**dict.fromkeys(range(6)), 6: 4, 7: 9},
        *[dict.fromkeys(range(8))] * 3,
    ]
    solo, together = runs(runner, listener, make, feeds, ArenaShape(128, 4, 8), range(8))
    for layout in together:
        assert [same(solo[slot], layout[slot]) for slot in range(8)] == [True] * 8


def test_products_do_not_depend_on_the_number_of_rows() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(96, 160)
    product, rows = ExactProduct(linear), torch.randn(67, 96)
    torch.set_num_threads(1)
    with torch.inference_mode():
        whole = product(rows)
        torch.testing.assert_close(whole, linear(rows))
        for first, last in ((0, 1), (5, 8), (3, 12), (60, 67), (1, 66)):
            assert torch.equal(product(rows[first:last]), whole[first:last])
        assert product(rows.view(1, 67, 96)).shape == (1, 67, 160)
        assert product(rows[:0]).shape == (0, 160)


def test_every_product_has_eight_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.Linear(4, 3)
    seen: list[int] = []
    plain = linear.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape[0])
        return plain(x)

    monkeypatch.setattr(linear, "forward", forward)
    ExactProduct(linear)(torch.randn(2, 9, 4))
    assert seen == [ROWS] * 3


def refused(model: PreTrainedModel, **options: Any) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as caught:
        adopt_model(model, None, LoadOptions(**{"exact": True} | options), lambda _: None)
    assert caught.value.stage == "exact" and caught.value.hint
    return caught.value


def test_half_precision_and_several_threads_are_refused() -> None:
    assert "float32 on the CPU only" in str(refused(build("llama"), dtype="bfloat16"))
    assert "one thread, not on 2" in str(refused(build("llama"), num_threads=2))


def test_experts_are_refused() -> None:
    assert "multiplied outside of linear layers" in str(refused(build("mixtral")))


def test_the_reference_route_is_refused() -> None:
    assert "needs the fast attention route" in str(refused(build("llama"), route="reference"))


def test_a_model_that_the_measurement_finds_different_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with an activation whose last values, on some machines, are computed one by one."""
    model = build("llama")
    plain = model.model.norm.forward
    monkeypatch.setattr(model.model.norm, "forward", lambda x: plain(x) * (1 + 1e-6 * x.shape[1]))
    assert "differ in their last bits" in str(refused(model))


def test_a_product_that_rounds_differently_from_row_to_row_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build("gpt2")
    plain = model.lm_head.forward
    uneven = torch.ones(ROWS, 1).index_fill_(0, torch.tensor([5]), 1 + 1e-6)
    monkeypatch.setattr(model.lm_head, "forward", lambda x: plain(x) * uneven)
    assert "rounds differently from row to row" in str(refused(model))


def test_without_it_nothing_is_claimed() -> None:
    runner = started(build("llama"), exact=False, num_threads=1)
    assert not runner.info.exact
