"""A cursor on one token of the packed row: where tokens stand, where arrows lead, what a token is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cbtui.drawing.token_cells import FATES, TokenBytes, alternatives, percent, token_line
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, clip_line, line_width
from cbtui.telling.naming import Badges
from engine.stream.drafts import Fate
from engine.stream.records import NO_BLOCK, Segment, StepRecord


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token is drawn: which line, from which column, how wide; `segment` and `token` say which."""

    line: int
    column: int
    width: int
    segment: int
    token: int


@dataclass(frozen=True, slots=True)
class TokenAnchor:
    """A token by its sequence and its distance from the last one fed, so that a cursor stays with the
    newest token of a sequence while steps go by."""

    request_id: str
    back: int


def anchor_of(record: StepRecord, place: Place) -> TokenAnchor:
    """The anchor of a place."""
    segment = record.segments[place.segment]
    return TokenAnchor(segment.request_id, segment.q_len - 1 - place.token)


def place_of(record: StepRecord, places: Sequence[Place], anchor: TokenAnchor | None) -> Place | None:
    """Where an anchor's token stands, or the nearest drawn one of its sequence; else the first place."""
    if not places:
        return None
    number = next(
        (n for n, s in enumerate(record.segments) if anchor and s.request_id == anchor.request_id), None
    )
    own = [place for place in places if place.segment == number]
    if anchor is None or number is None or not own:
        return places[0]
    token = record.segments[number].q_len - 1 - anchor.back
    return min(own, key=lambda place: abs(place.token - token))


def moved(places: Sequence[Place], place: Place, dx: int, dy: int) -> Place:
    """The next place in reading order, or the nearest one on the next line that has any."""
    if dx:
        at = places.index(place) + dx
        return places[at] if 0 <= at < len(places) else place
    lines = sorted({p.line for p in places})
    at = lines.index(place.line) + dy
    if not 0 <= at < len(lines):
        return place
    middle = place.column + place.width // 2
    there = [p for p in places if p.line == lines[at]]
    return min(there, key=lambda p: abs(p.column + p.width // 2 - middle))


def token_words(
    record: StepRecord, place: Place, badges: Badges, text: TokenBytes, block_size: int, width: int
) -> Line:
    """All there is to say of a token: `D p14 ·named  id 3472 · KV block 7 · → ·King 46 %, or ·K 4 %`."""
    segment = record.segments[place.segment]
    badge = badges[segment.request_id]
    token, position = segment.token_ids[place.token], segment.position + place.token
    data = text(token)
    pieces: list[Piece] = [
        (f" {badge.letter} p{position} ", f"badge:{badge.colour}"),
        (" ", ""),
        *token_line(data, "strong", 24),
        (f"  id {token}", ""),
    ]
    if data is not None and not data.isascii():
        pieces.append((f" · bytes {data.hex(' ').upper()}", "dim"))
    blocks = segment.block_ids[position // block_size :]
    if blocks and blocks[0] != NO_BLOCK:
        pieces.append((f" · KV block {blocks[0]}", ""))
    pieces.append((" · ", "dim"))
    outcome = _outcome(segment, place.token, text)
    if outcome == _STORED and line_width((*pieces, *outcome)) > width:
        outcome = _STORED_IN_SHORT
    return clip_line(merged([*pieces, *outcome]), width)


_STORED: list[Piece] = [("its key and value are stored; its prediction is not used", "dim")]
_STORED_IN_SHORT: list[Piece] = [("only its key and value are used", "dim")]


#: What the answer at the token before a draft that was right was used for.
_CHECKED: dict[Fate, str] = {
    "accepted": "its prediction is the draft behind it",
    "unused": "its prediction is the draft behind it, which came after the end",
}


def _outcome(segment: Segment, token: int, text: TokenBytes) -> list[Piece]:
    """What the model's answer at this token was used for."""
    if segment.kind == "dead":
        return [("dead: ended, fed again, answer thrown away", "warn")]
    fate = segment.fate(token)
    told: list[Piece] = [(f"{FATES[fate]} · ", "")] if fate else []
    if fate == "rejected":
        return [*told, ("its key is given up", "warn")]
    if token + 1 < segment.num_kept:
        checks = segment.fate(token + 1)
        return [*told, (_CHECKED[checks], "dim")] if checks else _STORED
    if fate == "unused" or (segment.sampled is None and segment.outputs):
        return [*told, ("its request ended", "dim")]
    if segment.sampled is None:
        left = segment.num_prompt_left
        return [
            (f"{left:,} prompt tokens to come before one is sampled" if left else "nothing sampled", "dim")
        ]
    chance = "" if segment.logprob is None else f" {percent(segment.logprob)}"
    sampled = token_line(text(segment.sampled), "strong")
    pieces: list[Piece] = [*told, ("→ ", "accent"), *sampled, (chance, "")]
    if more := alternatives(segment, text, count=len(segment.top)):
        pieces += [("   ", ""), *more]
    return pieces
