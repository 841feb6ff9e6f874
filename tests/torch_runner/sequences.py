"""Small random models, and sequences driven through a runner by hand, one plan after another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import torch
from transformers import AutoModelForCausalLM as AutoModel
from transformers import PreTrainedModel

from engine.request import SamplingParams
from engine.runner import LoadFailed
from engine.step.geometry import ArenaShape
from engine.step.plan import Layout, Plan, PlanRow, SampledToken
from engine.torch_runner import LoadOptions, TorchRunner
from engine.torch_runner.forward import Route
from tests.torch_runner.zoo import VOCAB, config

ARENA = ArenaShape(num_blocks=40, block_size=4, num_slots=4)


def build(kind: str) -> PreTrainedModel:
    """A model with random weights in float64: always the same ones for a kind."""
    torch.manual_seed(1)
    model = AutoModel.from_config(
        config(kind), dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


@cache
def alone(kind: str) -> PreTrainedModel:
    """A copy for transformers' own `generate` and forward, which no runner touches."""
    return build(kind)


def generated(kind: str, prompt: list[int], count: int) -> list[int]:
    """The greedy continuation transformers' own `generate` gives a prompt alone; `count` is at most 12."""
    return _generated(kind, tuple(prompt))[:count]


@cache
def _generated(kind: str, prompt: tuple[int, ...]) -> list[int]:
    ids = torch.tensor([prompt])
    output = alone(kind).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist()


def logprobs(kind: str, prompt: list[int], outputs: list[int]) -> list[float]:
    """Natural log probabilities of the outputs under one plain forward of prompt and outputs."""
    with torch.inference_mode():
        logits = alone(kind)(torch.tensor([prompt + outputs])).logits[0]
    table = torch.log_softmax(logits, dim=-1)
    return [float(table[len(prompt) - 1 + i, token]) for i, token in enumerate(outputs)]


@cache
def _started(kind: str, route: Route, replay: bool = False) -> TorchRunner:
    options = LoadOptions(dtype="float64", route=route, prepack=False, replay=replay, num_threads=1)
    runner = TorchRunner(build(kind), options=options)
    runner.start()
    failed = [event for event in runner.poll() if isinstance(event, LoadFailed)]
    assert not failed, failed
    assert runner.loaded.route == route, runner.loaded.fallback_reason
    return runner


def make_runner(
    kind: str = "llama",
    route: Route = "fast",
    shape: ArenaShape = ARENA,
    arenas: Iterable[int] = (0,),
    replay: bool = False,
) -> TorchRunner:
    """A started runner on a small model in float64, with fresh arenas open."""
    runner = _started(kind, route, replay)
    runner.start()  # loaded already: this only drops the arenas of the test before
    runner.poll()
    for arena in arenas:
        runner.open_arena(arena, shape)
    return runner


@dataclass
class Sequence:
    """One sequence and how far it has come. `num_computed` tokens have their KV in the arena."""

    slot: int
    prompt: list[int]
    block_ids: list[int]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    outputs: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    num_computed: int = 0
    n_top: int = 0

    @property
    def name(self) -> str:
        return f"r{self.slot}"

    def row(self, count: int | None = None) -> PlanRow:
        """The plan row feeding `count` tokens, or all there are."""
        pending = (self.prompt + self.outputs)[self.num_computed :]
        fed = pending[:count]
        caught_up = len(fed) == len(pending)
        return PlanRow(
            request_id=self.name,
            slot=self.slot,
            kind="decode" if self.outputs and len(fed) == 1 else "prefill",
            token_ids=fed,
            start_position=self.num_computed,
            kv_len=self.num_computed + len(fed),
            block_ids=self.block_ids,
            sampling=self.sampling if caught_up else None,
            output_index=len(self.outputs),
            n_top=self.n_top,
        )

    def dead_row(self, frozen: bool = True) -> PlanRow:
        """The row of a held slot: its last token, with the KV before it frozen or given back."""
        tokens = self.prompt + self.outputs
        return PlanRow(
            request_id=self.name,
            slot=self.slot,
            kind="dead",
            token_ids=[tokens[self.num_computed]],
            start_position=self.num_computed,
            kv_len=self.num_computed + 1 if frozen else 1,
            block_ids=self.block_ids if frozen else [],
        )

    def advance(self, row: PlanRow, sampled: SampledToken | None) -> None:
        """Take a step's answer."""
        self.num_computed += len(row.token_ids)
        assert (sampled is None) == (row.sampling is None)
        if sampled is not None:
            self.outputs.append(sampled.token_id)
            self.logprobs.append(sampled.logprob)


def run_step(
    runner: TorchRunner,
    feeds: dict[int, int | None],
    sequences: list[Sequence],
    layout: Layout,
    dead: Iterable[PlanRow] = (),
    arena: int = 0,
) -> None:
    """One step: slot → tokens to feed (None: all pending); dead rows ride along, in slot order."""
    fed = {slot: sequences[slot].row(count) for slot, count in feeds.items()}
    rows = sorted([*fed.values(), *dead], key=lambda row: row.slot)
    reply = runner.run(Plan(epoch=1, arena_id=arena, step=1, layout=layout, rows=rows))
    assert len(reply.sampled) == len(rows)
    for row, sampled in zip(rows, reply.sampled, strict=True):
        if row.kind != "dead":
            sequences[row.slot].advance(row, sampled)
        else:
            assert sampled is None


def three_sequences(n_top: int = 0, at_home: bool = False) -> list[Sequence]:
    """Prompts of 5, 9 and 11 tokens on scattered, interleaved blocks of four, or in home runs of ten."""
    generator = torch.Generator().manual_seed(7)
    prompts = [torch.randint(VOCAB, (n,), generator=generator).tolist() for n in (5, 9, 11)]
    tables = ([31, 2, 17, 5, 23], [4, 39, 0, 11, 28, 9], [6, 1, 30, 3, 20, 8])
    if at_home:
        tables = tuple([slot * 10 + i for i in range(6)] for slot in range(3))
    return [Sequence(i, p, t, n_top=n_top) for i, (p, t) in enumerate(zip(prompts, tables, strict=True))]


#: Steps as slot → tokens fed. Slot 0 starts alone; slot 1 joins while 0 decodes, and is cut in two; slot 2
#: comes in pieces of 4, 6 and 1 beside them. Every mix of whole and cut prefill and decode occurs.
MIXED: list[dict[int, int | None]] = [
    {0: None},
    {0: None, 1: 6},
    {0: None, 1: None, 2: 4},
    {0: None, 1: None, 2: 6},
    {1: None, 2: None},
    *[{0: None, 1: None, 2: None}] * 4,
]


def assert_equals_alone(kind: str, sequences: list[Sequence]) -> None:
    """Every sequence's tokens are those of `generate` alone, and its log probabilities those of a forward."""
    for sequence in sequences:
        assert sequence.outputs
        assert sequence.outputs == generated(kind, sequence.prompt, len(sequence.outputs))
        expected = logprobs(kind, sequence.prompt, sequence.outputs)
        difference = max(abs(a - b) for a, b in zip(sequence.logprobs, expected, strict=True))
        # Norms and softmax are in float32 even in a float64 model of the Llama family.
        assert difference < (1e-9 if kind == "gpt2" else 1e-4), (
            f"slot {sequence.slot}: log probabilities differ by {difference}"
        )
