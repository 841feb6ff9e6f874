"""Steps made by hand for the drawing tests: rows of words laid out by the engine's own geometry."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from cbtui.telling.naming import Badges
from engine.step.geometry import ArenaShape, lay_out
from engine.step.plan import Layout, Plan, PlanRow, SegmentKind
from engine.stream.records import (
    Events,
    QuietRecord,
    RequestRecord,
    Segment,
    StepRecord,
    TokenCounts,
)

ARENA = ArenaShape(num_blocks=4096, block_size=16, num_slots=256)
_WORDS = " Once upon a time in a land far away , there was one".split(" ")


@dataclass(frozen=True)
class Fed:
    """One sequence of a step: its tokens as bytes or a number of made-up words, from `position` on."""

    tokens: int | tuple[bytes, ...] = 1
    position: int = 0
    kind: SegmentKind | None = None
    sampled: bytes | None = b" that"
    left: int = 0
    logprob: float = -0.891598


class Scene:
    """Requests named A, B, … by place, and the tokens they were fed."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self.token_bytes: dict[int, bytes] = {}
        self.badges = Badges()
        self._named = 0

    def token(self, data: bytes) -> int:
        number = self._ids.setdefault(data, len(self._ids))
        self.token_bytes[number] = data
        return number

    def text(self, token: int) -> bytes | None:
        return self.token_bytes.get(token)

    def step(
        self,
        *fed: Fed,
        layout: Layout = "ragged",
        step: int = 1,
        mode: str = "continuous",
        slots: int | None = None,
        barrier: bool = False,
        names: str = "",
    ) -> StepRecord:
        """A step that feeds these sequences, in slot order; `names` gives their letters if not A, B, …"""
        owners = [ord(letter) - ord("A") for letter in names] or list(range(len(fed)))
        self._name(max(owners, default=-1) + 1)
        rows = [
            self._row(f"r{owner}", slot, one)
            for slot, (owner, one) in enumerate(zip(owners, fed, strict=True))
        ]
        geometry = lay_out(Plan(1, 0, step, layout, rows), ARENA)
        segments = tuple(
            Segment(
                row.request_id,
                row.slot,
                row.kind,
                span.row,
                span.q_start,
                span.q_len,
                span.kv_start,
                span.kv_len,
                span.position,
                tuple(row.token_ids),
                (),
                one.left,
                None if row.kind == "dead" or one.left or one.sampled is None else self.token(one.sampled),
                one.logprob,
            )
            for row, span, one in zip(rows, geometry.spans, fed, strict=True)
        )
        total = geometry.shape[0] * geometry.shape[1]
        dead = sum(segment.kind == "dead" for segment in segments)
        prompt = sum(segment.q_len for segment in segments if segment.kind == "prefill")
        decode = sum(segment.kind == "decode" for segment in segments)
        return StepRecord(
            step=step,
            epoch=1,
            mode=mode,
            policy=mode,
            layout=layout,
            start_s=float(step),
            end_s=step + 1.0,
            shape=geometry.shape,
            num_keys=geometry.num_keys,
            tokens=TokenCounts(prompt, decode, 0, dead, total - prompt - decode - dead),
            max_num_batched_tokens=2048,
            max_num_seqs=slots if slots is not None else len(fed),
            segments=segments,
            slots=(),
            waiting_count=0,
            waiting=(),
            free_blocks=0,
            num_blocks=1,
            kv_tokens=0,
            events=Events(barrier=barrier),
        )

    def _name(self, count: int) -> None:
        while self._named < count:
            request = RequestRecord(f"r{self._named}", self._named, (0,), "", 1, 0.0)
            self.badges.apply(QuietRecord(0, 0.0, Events(submitted=(request,))))
            self._named += 1

    def _row(self, request_id: str, slot: int, fed: Fed) -> PlanRow:
        if isinstance(fed.tokens, int):
            words = [f" {_WORDS[1 + i % (len(_WORDS) - 1)]}".encode() for i in range(fed.tokens)]
            tokens = [self.token(word) for word in words]
        else:
            tokens = [self.token(data) for data in fed.tokens]
        kind = fed.kind or ("decode" if fed.position and len(tokens) == 1 else "prefill")
        blocks = list(range((fed.position + len(tokens)) // ARENA.block_size + 1))
        return PlanRow(request_id, slot, kind, tokens, fed.position, fed.position + len(tokens), blocks)


def prefill(*words: str) -> Fed:
    return Fed(tuple(word.encode() for word in words))


#: The tutorial's step 1: three whole prompts.
STEP_1 = (Fed(5), Fed(5), Fed(7))
#: Its step 7: D's prompt beside two decodes; drawn with the letters D, B, C.
STEP_7 = (
    prefill("Once", " upon", " a", " time", " in", " a", " land", " far", " away", ","),
    Fed((b" to",), 10, sampled=b" see", logprob=-1.171183),
    Fed((b" algorithm",), 12),
)


@st.composite
def fed_sequences(draw: st.DrawFn) -> tuple[Fed, ...]:
    """Any mixture of whole prompts, chunks, decodes and dead rows."""

    def one() -> Fed:
        kind = draw(st.sampled_from(("prefill", "chunk", "decode", "dead")))
        position = 0 if kind == "prefill" else draw(st.integers(1, 40))
        tokens = draw(st.integers(1, 14)) if kind in ("prefill", "chunk") else 1
        return Fed(tokens, position, "dead" if kind == "dead" else None, left=3 * (kind == "chunk"))

    return tuple(one() for _ in range(draw(st.integers(1, 9))))


#: Attention windows: none, the narrowest, some that cut what `fed_sequences` makes, one that never does.
WINDOWS = st.sampled_from((None, None, 1, 2, 5, 9, 100))
