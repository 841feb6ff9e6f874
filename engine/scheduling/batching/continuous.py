"""Continuous batching: decided anew at every step, prompts fed whole.

The idea is Orca's, which calls it iteration-level scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request, RequestStatus


class ContinuousBatching:
    """A finished sequence frees its slot and the next waiting request enters at once."""

    holds_slots = False

    def admits(self, running: Sequence[Request]) -> bool:
        return True

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        return whole_or_piece(request, remaining, whole_step)


def whole_or_piece(request: Request, remaining: int, whole_step: int) -> int:
    """Unchunked prefill: all pending tokens at once, or wait.

    Only what no step could ever take whole is cut, into pieces of what the step has left; a request
    already part-fed goes on with what there is rather than wait for room.
    """
    need = request.num_pending_tokens
    if need <= remaining:
        return need
    if need > whole_step or request.status is RequestStatus.RUNNING:
        return remaining
    return 0
