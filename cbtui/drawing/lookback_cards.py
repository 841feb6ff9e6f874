"""Draws, a card a sequence, what its last query looks back at and what came of it. Pure.

For steps that leave the mask's panel room: most are decode-only, a row or two of cells. A card says how many
keys are seen, which tokens stood last among them, and how likely the next ones were:

     B p15   16 keys, 15 cached
    …·hard│·to│·imagine│·a│·world│·without│·it
    →  .         78 %  ▇▇▇▇▇▇▇▇▇▇▇▇
       ."        11 %  ▇▇
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cbtui.drawing.mask import seen_keys
from cbtui.drawing.token_cells import TokenBytes, percent, token_line
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, clip_line, line_width
from cbtui.looks.tokens import cell_width
from cbtui.telling.naming import Badges
from engine.stream.records import Segment, StepRecord

#: The newest tokens (ids) that a segment's last query sees, at most so many, oldest first.
Seen = Callable[[Segment, int], tuple[int, ...]]

#: Columns of a card, and between two of them; lines: what it says, its text, one candidate at least.
LEAST_WIDTH, _GAP, LEAST_HEIGHT = 20, 3, 3
#: Widest a card gets: wider bars say nothing more.
_MOST_WIDTH = 64
#: Lines of text on a card at most.
_MOST_TEXT = 3
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def cards(
    record: StepRecord,
    badges: Badges,
    seen: Seen,
    text: TokenBytes,
    width: int,
    height: int,
    window: int | None = None,
) -> list[Line]:
    """A card for every sequence that sampled, in at most `width` × `height`; empty where they do not fit.

    `window`: keys a query sees in the shown layers; None: all before it.
    """
    found = [segment for segment in record.segments if segment.sampled is not None]
    across = max(1, (width + _GAP) // (LEAST_WIDTH + _GAP))
    if not found or width < LEAST_WIDTH:
        return []
    down = -(-len(found) // across)
    across = -(-len(found) // down)
    # A blank line between rows of cards, if there is room for it.
    blank = int(down > 1 and height >= down * (LEAST_HEIGHT + 1) - 1)
    lines = (height - blank * (down - 1)) // down
    if lines < LEAST_HEIGHT:
        return []
    size = min(_MOST_WIDTH, (width + _GAP) // across - _GAP)
    candidates = max(len(_candidates(segment)) for segment in found)
    # What the candidates leave is text, up to a few lines.
    depth = max(1, min(_MOST_TEXT, lines - 1 - candidates))
    lines = min(lines, 1 + depth + candidates)
    drawn: list[Line] = []
    for first in range(0, len(found), across):
        if first and blank:
            drawn.append(())
        here = found[first : first + across]
        row = [_card(segment, badges, seen, text, (size, lines), depth, window) for segment in here]
        drawn.extend(_beside([card[y] for card in row], size) for y in range(lines))
    return drawn


def _beside(parts: list[Line], size: int) -> Line:
    pieces: list[Piece] = []
    for number, part in enumerate(parts):
        if number:
            pieces.append((" " * (number * (size + _GAP) - line_width(tuple(pieces))), ""))
        pieces.extend(part)
    return merged(pieces)


def _candidates(segment: Segment) -> list[tuple[int, float | None]]:
    """The chosen token first, then the likeliest others."""
    assert segment.sampled is not None
    chances = dict(segment.top)
    chosen = segment.logprob if segment.logprob is not None else chances.get(segment.sampled)
    return [(segment.sampled, chosen), *(pair for pair in segment.top if pair[0] != segment.sampled)]


def _card(
    segment: Segment,
    badges: Badges,
    seen: Seen,
    text: TokenBytes,
    size: tuple[int, int],
    depth: int,
    window: int | None,
) -> list[Line]:
    badge = badges[segment.request_id]
    width, height = size
    position = segment.position + segment.num_kept - 1
    num_seen = seen_keys(segment, window)
    count = f"{num_seen:,} key{'s' * (num_seen != 1)}"
    name = f" {badge.letter} p{position} "
    cached = f", {segment.num_cached:,} cached"
    standing = segment.num_cached + segment.num_kept
    if num_seen < standing:
        cached = f" of {standing:,}"
    if segment.num_cached and cell_width(name) + 2 + len(count) + len(cached) <= width:
        count += cached
    head: Line = ((name, f"badge:{badge.colour}"), ("  ", ""), (count, "dim"))
    ids = seen(segment, min(num_seen, width * depth))
    lines = [clip_line(head, width), *_tokens(badge.colour, ids, text, width, depth)]
    candidates = _candidates(segment)[: height - 1 - depth]
    tokens = [token_line(text(token), "strong" if n == 0 else "") for n, (token, _) in enumerate(candidates)]
    column = min(max(map(line_width, tokens)), max(6, width - 18))
    for number, ((_, logprob), token) in enumerate(zip(candidates, tokens, strict=True)):
        lines.append(
            _candidate(clip_line(token, column), logprob, column, width, badge.colour * (number == 0))
        )
    return [*lines, *[()] * (height - len(lines))]


def _candidate(token: Line, logprob: float | None, column: int, width: int, colour: str) -> Line:
    """One token that could come next; the chosen one has the request's `colour`."""
    pieces: list[Piece] = [("→ " if colour else "  ", "accent"), *token]
    pieces.append((" " * (column - line_width(token) + 1), ""))
    if logprob is not None:
        pieces.append((f"{percent(logprob):>5}  ", "" if colour else "dim"))
        room = width - line_width(tuple(pieces))
        pieces.append((_bar(math.exp(min(0.0, logprob)), room), f"block:{colour}" if colour else "bar"))
    return clip_line(merged(pieces), width)


def _bar(share: float, columns: int) -> str:
    """A bar of `share` of `columns`, in eighths; what is possible at all shows."""
    eighths = max(1, round(share * max(0, columns) * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _tokens(colour: str, ids: tuple[int, ...], text: TokenBytes, width: int, depth: int) -> list[Line]:
    """The newest tokens looked back at, as many as fit `depth` lines; the query's own underlined."""
    lines: list[list[Piece]] = [[]]
    used = 0
    for number, token in enumerate(reversed(ids)):
        line = token_line(text(token), f"ink:{colour}" if number else f"sampled:{colour}", width - 2)
        size = line_width(line) + 1
        # Filled from the end backwards; the first line keeps a cell for what is left out before it.
        if used + size > width - int(len(lines) == depth):
            if len(lines) == depth:
                lines[-1].insert(0, ("…", "dim"))
                break
            lines.append([])
            used = 0
        lines[-1][:0] = [*line, *([("│", "faint")] if used or number else [])]
        used += size
    drawn = [merged(pieces) for pieces in reversed(lines)]
    return [*drawn, *[()] * (depth - len(drawn))]
