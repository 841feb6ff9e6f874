"""A sequence's tokens in a step as styled pieces: who, what went in, what came out. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cbtui.looks.pieces import Line, Piece, line_width
from cbtui.looks.tokens import cell_width, clip, spans, visible
from cbtui.telling.naming import Badges
from engine.stream.drafts import Fate
from engine.stream.records import Segment

#: A token id's bytes; None: never seen in the stream.
TokenBytes = Callable[[int], bytes | None]

#: Before a draft's text, and in words: what became of it.
FATE_SIGNS: dict[Fate, str] = {"accepted": "✓", "unused": "○", "rejected": "✗"}
FATES: dict[Fate, str] = {
    "accepted": "an accepted draft",
    "unused": "a draft that was right, behind the end",
    "rejected": "a rejected draft",
}

#: Cells one token's text may take; longer ones are clipped.
TOKEN_LIMIT = 32


@lru_cache(maxsize=16384)
def token_line(data: bytes | None, style: str, limit: int = TOKEN_LIMIT) -> Line:
    """A token's visible text; stand-ins (white space, controls, byte fragments) are dim unless underlined."""
    if data is None:
        return (("?", "dim"),)
    text = visible(data)
    if cell_width(text) > limit:
        return ((clip(text, limit), style),)
    if style.startswith("sampled"):
        return ((text, style),)
    return tuple((span.text, "dim" if span.is_mark else style) for span in spans(data))


def percent(logprob: float) -> str:
    """A probability as a whole percentage that never claims certainty or impossibility."""
    share = math.exp(min(0.0, logprob))
    if share < 0.01:
        return "<1 %"
    return ">99 %" if share > 0.99 else f"{round(share * 100)} %"


@dataclass(frozen=True)
class SequenceCells:
    """One segment ready to be laid out.

    Attributes:
        segment: of the record.
        head: its badge: `B p10`, `D prefill 10`, `A dead`.
        tokens: one line of pieces a fed token.
        tail: what came of it: `→ ·see 31 %`, or why nothing did.
    """

    segment: Segment
    head: Piece
    tokens: tuple[Line, ...]
    tail: Line

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Cells of each token."""
        return tuple(map(_width, self.tokens))

    @cached_property
    def row_width(self) -> int:
        """Cells of all tokens and the rules between them."""
        return sum(self.widths) + len(self.tokens) - 1

    @cached_property
    def whole_width(self) -> int:
        """Cells of badge, tokens and tail on one line."""
        return self.head_width + self.row_width + self.tail_width + 2

    @cached_property
    def head_width(self) -> int:
        return cell_width(self.head[0])

    @cached_property
    def tail_width(self) -> int:
        return line_width(self.tail)


@lru_cache(maxsize=16384)
def _width(token: Line) -> int:
    return line_width(token)


def sequence_cells(segment: Segment, badges: Badges, text: TokenBytes) -> SequenceCells:
    """A segment's pieces."""
    badge = badges[segment.request_id]
    style = f"ink:{badge.colour}" if segment.kind != "dead" else "dim"
    tokens = [_fed(segment, n, style, text) for n in range(segment.q_len)]
    if segment.sampled is not None:
        last = segment.num_kept - 1
        tokens[last] = _fed(segment, last, f"sampled:{badge.colour}", text)
    head = (f" {_head(segment, badge.letter)} ", f"badge:{badge.colour}")
    return SequenceCells(segment, head, tuple(tokens), _tail(segment, text))


def _fed(segment: Segment, number: int, style: str, text: TokenBytes) -> Line:
    """A token that was fed; a draft with the sign of what became of it."""
    data, fate = text(segment.token_ids[number]), segment.fate(number)
    if fate is None:
        return token_line(data, style)
    return (FATE_SIGNS[fate], "" if fate == "accepted" else "dim"), *token_line(
        data, style if fate == "accepted" else "dim"
    )


def _head(segment: Segment, letter: str) -> str:
    if segment.kind == "dead":
        return f"{letter} dead"
    drafts = f"+{segment.num_drafts}" if segment.drafts else ""
    if segment.kind == "decode":
        return f"{letter} p{segment.position}{drafts}"
    start = f" from p{segment.position}" if segment.position else ""
    return f"{letter} prefill {segment.q_len - segment.num_drafts}{drafts}{start}"


def _tail(segment: Segment, text: TokenBytes) -> Line:
    if segment.kind == "dead":
        return (("░ ended: fed again, nothing sampled", "dim"),)
    if segment.sampled is not None:
        chance = "" if segment.logprob is None else f" {percent(segment.logprob)}"
        gained = f", {len(segment.outputs)} gained" if segment.drafts else ""
        return (("→ ", "dim"), *_strong(text(segment.sampled)), (chance + gained, "dim"))
    if segment.outputs:
        return ((f"→ ended, {len(segment.outputs)} gained", "dim"),)
    if segment.num_prompt_left:
        return ((f"⋯ {segment.num_prompt_left} to come", "dim"),)
    return (("nothing sampled", "dim"),)


def _strong(data: bytes | None) -> Line:
    return token_line(data, "strong")


def alternatives(segment: Segment, text: TokenBytes, count: int = 2) -> Line:
    """The likeliest `count` tokens not chosen: `or ·is 22 %, ·was 9 %`; empty if none is recorded."""
    pieces: list[Piece] = []
    for token, logprob in [pair for pair in segment.top if pair[0] != segment.sampled][:count]:
        pieces.append((", " if pieces else "or ", "dim"))
        pieces.extend(token_line(text(token), ""))
        pieces.append((f" {percent(logprob)}", "dim"))
    return tuple(pieces)
