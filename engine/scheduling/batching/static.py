"""Static batching: a wave is admitted into empty slots and held until its longest request has ended."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request
from engine.scheduling.batching.continuous import whole_or_piece


class StaticBatching:
    """Nobody enters while anyone runs; finished requests keep their slots and are still computed."""

    holds_slots = True

    def admits(self, running: Sequence[Request]) -> bool:
        return not running

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        return whole_or_piece(request, remaining, whole_step)
