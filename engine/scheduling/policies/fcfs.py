"""First come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request
from engine.scheduling.policies.base import last_in_order


class FirstComeFirstServed:
    """In order of arrival; nobody is ever overtaken."""

    name = "fcfs"
    summary = "first come, first served"

    def order_key(self, request: Request) -> tuple[float, ...]:
        return (request.index,)

    def victim(self, running: Sequence[Request]) -> Request:
        return last_in_order(self, running)
