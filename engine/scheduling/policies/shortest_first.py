"""Shortest job first, by the output tokens asked for, with ageing."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request
from engine.scheduling.policies.base import last_in_order

#: Requests that ask for more tokens than this count as equally long, so that nobody waits longer for it.
LONGEST_JOB = 2048


class ShortestFirst:
    """A step makes a token, so a step of waiting makes up for one token: a request is overtaken only by
    one that would also have ended first, had both begun when they arrived."""

    name = "shortest-first"
    summary = "fewest output tokens first; a step of waiting makes up for one token"

    def order_key(self, request: Request) -> tuple[float, ...]:
        return (request.arrival_step + min(request.params.max_tokens, LONGEST_JOB),)

    def victim(self, running: Sequence[Request]) -> Request:
        return last_in_order(self, running)
