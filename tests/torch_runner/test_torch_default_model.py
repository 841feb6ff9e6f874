"""The default model, real weights in float32: our steps give what `generate` gives alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from engine.request import SamplingParams
from engine.runner import Encoded, PromptInput, Ready
from engine.step.geometry import ArenaShape
from engine.step.plan import Layout
from engine.torch_runner import LoadOptions, TorchRunner
from engine.torch_runner.forward import Route
from tests.torch_runner.sequences import ARENA, Sequence, run_step

pytestmark = pytest.mark.model

PROMPTS = [
    PromptInput("The capital of France is"),
    PromptInput("Once upon a time, in a land far away,"),
    PromptInput("What is 2 + 2?", chat=True),
]
#: The third prompt comes in two pieces beside the decodes of the first two.
STEPS: list[dict[int, int | None]] = [
    {0: None, 1: 4},
    {0: None, 1: None, 2: 20},
    *[{0: None, 1: None, 2: None}] * 6,
]


@pytest.fixture(scope="module")
def path(default_model_path: Path) -> str:
    return str(default_model_path)


def _started(path: str, route: Route) -> TorchRunner:
    runner = TorchRunner(path, options=LoadOptions(route=route, num_threads=1))
    runner.start()
    assert isinstance(runner.poll()[-1], Ready)
    assert runner.loaded.route == route
    return runner


def _encoded(runner: TorchRunner) -> list[list[int]]:
    runner.encode(1, PROMPTS)
    (answer,) = runner.poll()
    assert isinstance(answer, Encoded)
    return [prompt.token_ids for prompt in answer.prompts]


@pytest.mark.parametrize("route", ["fast", "reference"])
def test_mixed_steps_give_what_generate_gives_alone(path: str, route: Route) -> None:
    runner = _started(path, route)
    prompts = _encoded(runner)
    outputs = []
    layouts: tuple[Layout, ...] = ("ragged", "padded")
    for layout in layouts:
        runner.open_arena(0, ARENA)
        tables = [[b for b in range(40) if b % 3 == slot][::-1] for slot in range(3)]
        sequences = [Sequence(i, p, t) for i, (p, t) in enumerate(zip(prompts, tables, strict=True))]
        for feeds in STEPS:
            run_step(runner, feeds, sequences, layout)
        outputs.append([s.outputs for s in sequences])
    assert outputs[0] == outputs[1]
    causal = runner.loaded.causal
    causal.use("reference")
    for prompt, output in zip(prompts, outputs[0], strict=True):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        solo = causal.model.generate(ids, attention_mask=mask, max_new_tokens=len(output), do_sample=False)
        assert output == solo[0, len(prompt) :].tolist()[: len(output)]


def test_a_seeded_text_is_the_same_alone_and_beside_seven_others(path: str) -> None:
    runner = _started(path, "fast")
    prompts = _encoded(runner)
    settings = SamplingParams(temperature=0.9, top_k=40, top_p=0.95, seed=5)
    texts = []
    for slots in ([3], range(8)):
        runner.open_arena(0, ArenaShape(8 * 16, 4, 8))
        sequences = [
            Sequence(slot, prompts[slot % 3], [slot + 8 * i for i in range(16)]) for slot in range(8)
        ]
        for sequence in sequences:
            sequence.sampling = msgspec.structs.replace(settings, seed=sequence.slot)
        for _ in range(12):
            run_step(runner, dict.fromkeys(slots), sequences, "ragged")
        texts.append(sequences[3].outputs)
    assert texts[0] == texts[1]


def test_it_knows_that_paris_is_the_capital_of_france(path: str) -> None:
    runner = _started(path, "fast")
    runner.open_arena(0, ARENA)
    sequence = Sequence(0, _encoded(runner)[0], list(range(8)))
    run_step(runner, {0: None}, [sequence], "ragged")
    assert runner.loaded.tokenizer is not None
    assert runner.loaded.tokenizer.decode(sequence.outputs) == " Paris"


def test_its_chat_template_adds_a_system_prompt_and_turns(path: str) -> None:
    runner = _started(path, "fast")
    runner.encode(1, [PromptInput("Hi", chat=True)])
    (answer,) = runner.poll()
    assert isinstance(answer, Encoded)
    (prompt,) = answer.prompts
    assert prompt.num_template_tokens == len(prompt.token_ids) - 1 > 5
    assert runner.info.has_chat_template
    assert runner.info.eos_token_ids == (2,)
