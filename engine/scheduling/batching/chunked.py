"""Continuous batching with chunked prefill: a prompt takes what the decodes leave of the budget.

The idea is Sarathi's: no prompt, however long, makes a decoding request wait for more than one
budget's worth of positions.
"""

from __future__ import annotations

from engine.request import Request
from engine.scheduling.batching.continuous import ContinuousBatching


class ChunkedBatching(ContinuousBatching):
    """Every step is filled to the budget while prompts wait; a prompt is fed over several steps."""

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        return min(request.num_pending_tokens, remaining)
