"""By priority, lower first (vLLM's sense of it), with ageing."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request
from engine.scheduling.policies.base import last_in_order

#: Steps of waiting that make up for one level of priority.
STEPS_PER_LEVEL = 100


class ByPriority:
    """A request is overtaken by one of a better priority only if that arrives within `STEPS_PER_LEVEL`
    steps for every level between them."""

    name = "priority"
    summary = f"lowest priority number first; {STEPS_PER_LEVEL} steps of waiting make up for one level"

    def order_key(self, request: Request) -> tuple[float, ...]:
        return (request.arrival_step + STEPS_PER_LEVEL * request.priority,)

    def victim(self, running: Sequence[Request]) -> Request:
        return last_in_order(self, running)
