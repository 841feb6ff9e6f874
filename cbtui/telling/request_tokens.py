"""A request's tokens by their place in its sequence: prompt first, then what it produced. Pure."""

from __future__ import annotations

from engine.stream.ledger import Ledger


def tokens_between(ledger: Ledger, request_id: str, start: int, stop: int) -> tuple[int, ...]:
    """Token ids of positions [start, stop), as far as they are known."""
    story = ledger[request_id]
    prompt = story.request.prompt_token_ids
    start, split = max(0, start), len(prompt)
    outputs = story.output_token_ids[max(0, start - split) : max(0, stop - split)]
    return (*prompt[start:stop], *outputs)


def bytes_at(ledger: Ledger, request_id: str, position: int) -> bytes | None:
    """The bytes of the token at a position; None: not known."""
    found = tokens_between(ledger, request_id, position, position + 1)
    return ledger.token_bytes.get(found[0]) if found else None
