"""What a policy decides: the order in which requests enter, and whom to preempt.

Pure: it sees requests, holds no KV and changes nothing. When requests may enter and how many tokens
each gets is the mode's way to batch (`batching/`); slots, blocks, the budget and the states are the
mechanism's (`scheduler.py`), once, for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.request import Request


class Policy(Protocol):
    """One order of requests.

    Nobody starves if the key grows with `arrival_step`: a request is then overtaken only by those that
    arrive within a fixed number of steps after it. That is linear ageing, written as a constant: what
    waits longer need not be sorted again.

    Attributes:
        name: what settings and records call it.
        summary: a sentence for help and menus.
    """

    name: str
    summary: str

    def order_key(self, request: Request) -> tuple[float, ...]:
        """Place in the waiting queue, smallest first, ties by arrival; constant, so the queue is a heap."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Whom to preempt when KV blocks run out; `running` is in order of admission, never empty."""


def last_in_order(policy: Policy, running: Sequence[Request]) -> Request:
    """The running request that would have entered last. The first in order never gives way to another,
    so somebody always gets on."""
    return max(running, key=lambda request: (policy.order_key(request), request.index))
