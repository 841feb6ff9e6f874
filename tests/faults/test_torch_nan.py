"""A prompt for which the model gives no numbers ends alone: whoever shares its steps, and whoever gets its
cells later, has the tokens it would have had."""

from __future__ import annotations

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.session import drain
from engine.stream.ledger import Ledger
from engine.torch_runner import LoadOptions, TorchRunner
from engine.torch_runner.forward import Route
from tests.torch_runner.sequences import build, generated
from tests.torch_runner.zoo import VOCAB

#: Its embedding is not a number.
POISON = VOCAB - 1
PARAMS = SamplingParams(max_tokens=6)


@pytest.fixture(scope="module", params=["fast", "reference"])
def runner(request: pytest.FixtureRequest) -> TorchRunner:
    route: Route = request.param
    options = LoadOptions(dtype="float64", route=route, prepack=False, replay=route == "fast", num_threads=1)
    runner = TorchRunner(build("llama"), options=options)
    runner.start()
    runner.poll()
    assert runner.loaded.route == route
    with torch.no_grad():
        runner.loaded.causal.model.get_input_embeddings().weight[POISON] = float("nan")
    return runner


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(POISON, (n,), generator=generator).tolist() for n in (5, 9, 11, 7, 4)]


def ends(engine: Engine) -> tuple[Ledger, set[str]]:
    ledger = Ledger()
    for record in drain(engine):
        ledger.apply(record)
    return ledger, {one for one in ledger.stories if ledger[one].finish.reason == "error"}


@pytest.mark.parametrize("budget", [256, 6], ids=["whole", "in pieces"])
@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous", "chunked"])
def test_only_the_request_without_numbers_ends_in_error(runner: TorchRunner, mode: str, budget: int) -> None:
    config = EngineConfig(
        mode=mode, max_num_seqs=3, block_size=4, num_blocks=24, max_num_batched_tokens=budget
    )
    engine = Engine(config, runner, runner.info)
    good = prompts()
    bad = [*good[1][:7], POISON, *good[1][7:]]
    order = [good[0], bad, good[1], good[2], bad, good[3], good[4]]
    ids = [engine.add_request(prompt, PARAMS) for prompt in order]
    ledger, failed = ends(engine)
    assert failed == {ids[1], ids[4]}
    for one in failed:
        assert "not finite" in ledger[one].finish.error
        assert ledger[one].output_token_ids == []
    for one, prompt in zip(ids, order, strict=True):
        if one not in failed:
            assert ledger[one].output_token_ids == generated("llama", prompt, 6)
    assert engine.kv.pool.num_free == 24


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
def test_nobody_finds_its_prefix_again(runner: TorchRunner, mode: str) -> None:
    """Blocks it has filled before its fault showed must not be shared, nor those who share them go on."""
    config = EngineConfig(
        mode=mode, max_num_seqs=3, block_size=4, max_num_batched_tokens=6, prefix_caching=True
    )
    engine = Engine(config, runner, runner.info)
    good = prompts()
    head = good[1][:8]
    ids = [engine.add_request([*head, POISON, *good[2]], PARAMS) for _ in range(2)]
    ids.append(engine.add_request([*head, *good[2]], PARAMS))
    ids.append(engine.add_request([POISON, *head], PARAMS))
    ledger, failed = ends(engine)
    assert failed == {ids[0], ids[1], ids[3]}
    assert ledger[ids[2]].output_token_ids == generated("llama", [*head, *good[2]], 6)
    assert engine.kv.pool.num_free == config.num_blocks
