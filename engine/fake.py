"""A runner without a model: its next token is a hash of the prefix it gathers through the block table.

It stores what each plan writes into arena cells and reads back what each row would attend to, so a wrong
block, position, mask run or write index changes the output, as it would on a real model. Fast enough for
thousands of steps a second; needs no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from zlib import crc32

from engine.request import SamplingParams
from engine.runner import (
    Encoded,
    EncodedPrompt,
    ForwardError,
    ModelFacts,
    ModelInfo,
    PromptInput,
    Ready,
    RunnerEvent,
)
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape, Geometry, lay_out, read_cells
from engine.step.mask import query_run
from engine.step.plan import Plan, PlanRow, Reply, SampledToken

VOCAB_SIZE = 1000
#: Log probability of every token it chooses.
LOGPROB = -0.5
#: Never written: what an unwritten cell holds.
EMPTY = (-1, -1)


def fake_token_bytes(token_id: int) -> bytes:
    """Readable stand-in text of a fake token: a byte below 256, a short word above."""
    return bytes([token_id]) if token_id < 256 else b" t%d" % token_id


def draw_seed(params: SamplingParams, output_index: int) -> str:
    """What an output token is drawn with; nothing when greedy, as is drawing among one."""
    if params.temperature <= 0 or params.top_k == 1:
        return ""
    return f"{params.seed}:{output_index}:{params.top_k}:{params.top_p}"


class FakeRunner:
    """Implements `ModelRunner` on hashes.

    Args:
        eos_token_id: a token that ends requests; None: none does.
        step_s: seconds a forward pretends to take (reported, not slept).
        delay_s: seconds a forward really sleeps.
        window: keys a query sees, its own included; None: all before it.
        geometry: lays plans out; tests inject a broken one.
        reader: cells a row reads; tests inject a broken one.
    """

    def __init__(
        self,
        *,
        eos_token_id: int | None = None,
        step_s: float = 0.0,
        delay_s: float = 0.0,
        window: int | None = None,
        geometry: Callable[[Plan, ArenaShape], Geometry] = lay_out,
        reader: Callable[[PlanRow, ArenaShape], list[int]] = read_cells,
    ) -> None:
        self.info = ModelInfo(
            name="fake",
            source="fake",
            vocab_size=VOCAB_SIZE,
            max_model_len=1 << 20,
            eos_token_ids=() if eos_token_id is None else (eos_token_id,),
            has_chat_template=True,
            facts=ModelFacts(layer_windows=(window,)),
        )
        self._window = window
        self.step_s = step_s
        self.delay_s = delay_s
        self.plans: list[Plan] = []
        self.keep_plans = False
        self._geometry = geometry
        self._reader = reader
        self._arenas: dict[int, tuple[ArenaShape, list[tuple[int, int]]]] = {}
        self._events: list[RunnerEvent] = []
        self._epoch = 0
        #: The sequence under check, as (position, token).
        self._checked: list[tuple[int, int]] = []

    def start(self) -> None:
        self._epoch += 1
        self._events.append(Ready(self.info, self._epoch))

    def poll(self) -> list[RunnerEvent]:
        events, self._events = self._events, []
        return events

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        """Bytes are tokens; a chat template adds one token before and one after."""
        encoded = []
        for prompt in prompts:
            ids = list(prompt.text.encode("utf-8", "replace"))
            if not ids:
                encoded.append(EncodedPrompt([], error="the prompt is empty"))
            elif prompt.chat:
                encoded.append(EncodedPrompt([256, *ids, 257], num_template_tokens=2))
            else:
                encoded.append(EncodedPrompt(ids))
        self._events.append(Encoded(ticket, encoded))

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        self._arenas[arena_id] = (shape, [EMPTY] * shape.num_cells)

    def run(self, plan: Plan) -> Reply:
        if self.keep_plans:
            self.plans.append(plan)
        if self.delay_s:
            time.sleep(self.delay_s)
        shape, cells = self._arenas[plan.arena_id]
        geometry = self._geometry(plan, shape)
        for place, cell in enumerate(geometry.write_index):
            cells[cell] = (geometry.position_ids[place], geometry.input_ids[place])
        # Keys side by side, as the mask's key axis orders them, so that a wrong run reads a neighbour.
        key_axis = self._key_axis(plan, geometry, shape, cells)
        sampled: list[SampledToken | None] = []
        for row, span in zip(plan.rows, geometry.spans, strict=True):
            if row.sampling is None:
                sampled.append(None)
                continue
            start, stop = query_run(span, span.q_len - 1, self._window)
            seen = key_axis[span.row][start:stop]
            sampled.append(self._sample(row, seen))
        return Reply(plan.epoch, plan.step, self.step_s, 0.0, sampled)

    def check(self, check: Check) -> Checked:
        """The rule itself on the sequence as it is: no cells, no blocks, no geometry."""
        del self._checked[check.start :]
        if len(self._checked) != check.start:
            raise ForwardError(f"a check goes on at {check.start}, but {len(self._checked)} tokens were fed")
        first = len(check.token_ids) - len(check.served)
        choices = []
        for place, token in enumerate(check.token_ids):
            self._checked.append((check.start + place, token))
            if place >= first:
                seen = self._checked[-self._window :] if self._window else self._checked
                choices.append(_next_token(seen, ""))
        gaps = [float(choice != served) for choice, served in zip(choices, check.served, strict=True)]
        return Checked(choices, gaps, [LOGPROB - gap for gap in gaps])

    def close(self) -> None:
        """Nothing to end."""

    def _key_axis(
        self, plan: Plan, geometry: Geometry, shape: ArenaShape, cells: list[tuple[int, int]]
    ) -> list[list[tuple[int, int]]]:
        axis = [[EMPTY] * geometry.num_keys for _ in range(geometry.shape[0])]
        for row, span in zip(plan.rows, geometry.spans, strict=True):
            keys = [cells[cell] for cell in self._reader(row, shape)]
            axis[span.row][span.kv_start : span.kv_start + span.kv_len] = keys
        return axis

    def _sample(self, row: PlanRow, seen: list[tuple[int, int]]) -> SampledToken:
        assert row.sampling is not None
        token = _next_token(seen, draw_seed(row.sampling, row.output_index))
        top = [((token + i) % VOCAB_SIZE, LOGPROB - i) for i in range(row.n_top)]
        return SampledToken(token, LOGPROB, top)


def _next_token(seen: list[tuple[int, int]], seed: str) -> int:
    digest = crc32(repr((seen, seed)).encode())
    return 256 + digest % (VOCAB_SIZE - 256)
