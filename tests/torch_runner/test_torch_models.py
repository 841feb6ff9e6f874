"""Many types of model: mixed steps give what each one's own `generate` gives a sequence alone."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.session import drain
from engine.step.plan import Layout
from engine.stream.ledger import Ledger
from tests.torch_runner.sequences import (
    MIXED,
    assert_equals_alone,
    generated,
    make_runner,
    run_step,
    three_sequences,
)
from tests.torch_runner.zoo import KINDS

#: Those that `test_torch_routes` runs, on both routes, are not run again.
OTHERS = [kind for kind in KINDS if kind not in ("gpt2", "llama", "mistral", "gemma2", "gpt_oss")]


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_mixed_steps_give_what_generate_gives_alone(kind: str, layout: Layout) -> None:
    runner = make_runner(kind)
    sequences = three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, layout)
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_sequence_recomputed_and_cut_anew_goes_on_as_before(kind: str) -> None:
    runner, sequences = make_runner(kind), three_sequences()
    for feeds in MIXED[:6]:
        run_step(runner, feeds, sequences, "ragged")
    sequences[2].num_computed = 0  # preempted: prompt and outputs are fed again, in two pieces
    sequences[2].block_ids = [33, 12, 38, 25, 10, 36]
    for feeds in ({0: None, 2: 7}, {1: None, 2: None}, *MIXED[8:]):
        run_step(runner, feeds, sequences, "ragged")
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("kind", ["qwen3", "olmo2", "qwen3_moe"])
def test_the_reference_route_does_too(kind: str) -> None:
    runner, sequences = make_runner(kind, "reference"), three_sequences()
    for feeds in MIXED:
        run_step(runner, feeds, sequences, "padded")
    assert_equals_alone(kind, sequences)


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous", "chunked"])
@pytest.mark.parametrize("kind", ["gpt2", "gemma3", "olmo2"])
def test_the_engine_gives_what_generate_gives_alone_in_every_mode(kind: str, mode: str) -> None:
    """Few blocks and a small budget, so that prompts are cut and requests are preempted on the way."""
    runner = make_runner(kind)
    config = EngineConfig(
        mode=mode, max_num_seqs=2, max_num_batched_tokens=8, max_model_len=40, block_size=4, num_blocks=7
    )
    engine = Engine(config, runner, runner.info, epoch=2)
    prompts = [sequence.prompt for sequence in three_sequences()]
    for prompt in prompts:
        engine.add_request(prompt, SamplingParams(max_tokens=12, ignore_eos=True))
    ledger = Ledger()
    for record in drain(engine):
        ledger.apply(record)
    outputs = [story.output_token_ids for story in ledger.stories.values()]
    assert outputs == [generated(kind, prompt, 12) for prompt in prompts]
    preempted = any(story.num_preemptions for story in ledger.stories.values())
    assert preempted == (mode != "static"), "a wave's held slots give their blocks back first"


@pytest.mark.parametrize("mode", ["static", "continuous", "chunked"])
def test_drawn_texts_are_the_same_in_every_mode(mode: str) -> None:
    texts = []
    for slots in (1, 3):
        runner = make_runner("gpt2")
        config = EngineConfig(
            mode=mode,
            max_num_seqs=slots,
            max_num_batched_tokens=8,
            max_model_len=40,
            block_size=4,
            num_blocks=16,
        )
        engine = Engine(config, runner, runner.info, epoch=2)
        for seed, sequence in enumerate(three_sequences()):
            drawn = SamplingParams(
                max_tokens=9, temperature=1.3, top_k=30, top_p=0.9, seed=seed, ignore_eos=True
            )
            engine.add_request(sequence.prompt, drawn)
        ledger = Ledger()
        for record in drain(engine):
            ledger.apply(record)
        texts.append([story.output_token_ids for story in ledger.stories.values()])
    assert texts[0] == texts[1]
