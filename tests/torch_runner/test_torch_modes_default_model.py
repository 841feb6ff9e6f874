"""The whole engine on the default model: every mode gives, token for token, what transformers' own
`generate` gives for each prompt alone (float32, greedy)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.runner import PromptInput, Ready
from engine.torch_runner import LoadOptions, TorchRunner
from engine.workload import tutorial_workload

pytestmark = pytest.mark.model

MODES = ["static", "continuous-padded", "continuous"]
#: (prompt, through the chat template): lengths 1 to 80 tokens, several scripts, code, numbers, spaces.
VARIED = [
    ("Hello", False),
    ("The", False),
    ("2, 3, 5, 7, 11, 13,", False),
    ("def fibonacci(n):\n    ", False),
    ("The quick brown fox jumps over the lazy dog. " * 3, False),
    ("La capitale de la France est", False),
    ("In 1969, the first human", False),
    ("   \n\n  ", False),
    ("Water boils at a temperature of", False),
    ("SELECT name FROM users WHERE", False),
    ("Dear Sir or Madam,\n\nI am writing to", False),
    ("日本の首都は", False),
    ("A list of fruits:\n1. Apple\n2. Banana\n3.", False),
    ("Once upon a time", False),
    ("The opposite of hot is", False),
    ("What is the capital of Italy?", True),
    ("Name three colours.", True),
    ("Write one sentence about the sea, and mind that it is calm today although it rained.", True),
    ("Translate to French: good morning", True),
    ("Why is the sky blue?", True),
]


@pytest.fixture(scope="module")
def runner(default_model_path: Path) -> TorchRunner:
    return _started(default_model_path, prepack=True)


def _started(path: Path, *, prepack: bool) -> TorchRunner:
    # Without prepacking the model's own modules run; a replayed step would not call them.
    options = LoadOptions(prepack=prepack, replay=prepack)
    runner = TorchRunner(str(path), options=options)
    runner.start()
    assert isinstance(runner.poll()[-1], Ready)
    return runner


def _encoded(runner: TorchRunner, prompts: list[tuple[str, bool]]) -> list[list[int]]:
    runner.encode(1, [PromptInput(text, chat=chat) for text, chat in prompts])
    return [prompt.token_ids for prompt in runner.poll()[-1].prompts]


def _run(
    runner: TorchRunner, mode: str, slots: int, prompts: list[list[int]], caps: list[int]
) -> list[list[int]]:
    engine = Engine(EngineConfig(mode=mode, max_num_seqs=slots), runner, runner.info)
    requests = []
    for prompt, cap in zip(prompts, caps, strict=True):
        params = SamplingParams(max_tokens=cap, ignore_eos=True)
        requests.append(engine.requests[engine.add_request(prompt, params)])
    while engine.has_work:
        engine.step()
    return [request.output_token_ids for request in requests]


def _alone(path: Path, prompts: list[list[int]], caps: list[int]) -> list[list[int]]:
    """transformers' own code on its own copy of the model: nothing of this engine."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # go on past the end of text, as ignore_eos does
    outputs = []
    for prompt, cap in zip(prompts, caps, strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=cap,
                pad_token_id=0,
            )
        outputs.append(found[0, len(prompt) :].tolist())
    return outputs


def test_the_tutorials_six_with_a_tenth_of_their_caps(default_model_path: Path, runner: TorchRunner) -> None:
    requests = tutorial_workload()
    prompts = _encoded(runner, [(r.prompt, False) for r in requests])
    caps = [max(1, r.max_tokens // 10) for r in requests]
    alone = _alone(default_model_path, prompts, caps)
    for mode in MODES:
        assert _run(runner, mode, 3, prompts, caps) == alone, mode


def test_twenty_varied_prompts_at_eight_slots(default_model_path: Path, runner: TorchRunner) -> None:
    prompts = _encoded(runner, VARIED)
    caps = [16] * len(prompts)
    alone = _alone(default_model_path, prompts, caps)
    for mode in MODES:
        assert _run(runner, mode, 8, prompts, caps) == alone, mode


@pytest.mark.long
def test_all_611_tokens_of_the_tutorial(default_model_path: Path, runner: TorchRunner) -> None:
    requests = tutorial_workload()
    prompts = _encoded(runner, [(r.prompt, False) for r in requests])
    caps = [r.max_tokens for r in requests]
    alone = _alone(default_model_path, prompts, caps)
    for mode in MODES:
        assert _run(runner, mode, 3, prompts, caps) == alone, mode


@pytest.mark.long
@pytest.mark.parametrize(("mode", "positions"), zip(MODES, [1485, 692, 646], strict=True))
def test_the_positions_that_enter_the_models_first_linear(
    default_model_path: Path, mode: str, positions: int
) -> None:
    runner = _started(default_model_path, prepack=False)
    model = runner.loaded.causal.model
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    entered = []
    first.register_forward_pre_hook(lambda module, args: entered.append(args[0].shape[0] * args[0].shape[1]))
    requests = tutorial_workload()
    prompts = _encoded(runner, [(r.prompt, False) for r in requests])
    _run(runner, mode, 3, prompts, [r.max_tokens for r in requests])
    assert sum(entered) == positions
