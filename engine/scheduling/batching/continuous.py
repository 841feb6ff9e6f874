"""Continuous batching, first come first served: decided anew at every step.

The idea is Orca's, which calls it iteration-level scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request


class ContinuousPolicy:
    """A finished sequence frees its slot and the next waiting request enters at once."""

    name = "continuous"
    holds_slots = False

    def admits(self, running: Sequence[Request]) -> bool:
        return True

    def order_key(self, request: Request) -> tuple[float, ...]:
        return (request.index,)

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        return whole_or_piece(request, remaining, whole_step)

    def victim(self, running: Sequence[Request]) -> Request:
        return running[-1]


def whole_or_piece(request: Request, remaining: int, whole_step: int) -> int:
    """Unchunked prefill: all pending tokens at once, or wait.

    Only what no step could ever take whole is cut, into pieces of what the step has left; a request
    already part-fed goes on with what there is rather than wait for room.
    """
    need = request.num_pending_tokens
    if need <= remaining:
        return need
    if need > whole_step or request.num_computed_tokens > 0:
        return remaining
    return 0
