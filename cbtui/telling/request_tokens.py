"""A request's tokens by their place in its sequence: prompt first, then what it produced. Pure."""

from __future__ import annotations

from engine.stream.ledger import Ledger
from engine.stream.records import Segment


def tokens_between(ledger: Ledger, request_id: str, start: int, stop: int) -> tuple[int, ...]:
    """Token ids of positions [start, stop), as far as they are known."""
    story = ledger[request_id]
    prompt = story.request.prompt_token_ids
    start, split = max(0, start), len(prompt)
    outputs = story.output_token_ids[max(0, start - split) : max(0, stop - split)]
    return (*prompt[start:stop], *outputs)


def bytes_at(ledger: Ledger, segment: Segment, position: int) -> bytes | None:
    """The bytes of a sequence's token at a position in a step; None: not known.

    One fed in the step is what was fed: where a draft was rejected, another token came to stand later.
    """
    found = segment.token_ids[max(0, position - segment.position) :][:1]
    if position < segment.position:
        found = tokens_between(ledger, segment.request_id, position, position + 1)
    return ledger.token_bytes.get(found[0]) if found else None
