"""What a policy decides: who is admitted, in which order, and how many tokens each gets.

Pure: a policy sees requests and numbers, holds no KV and changes nothing. Slots, blocks, the budget and
the states are the mechanism's (`scheduler.py`), once, for every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.request import Request


class Policy(Protocol):
    """One way to schedule. A new one is a file with a class like this and its entry in `modes.MODES`.

    Attributes:
        name: what records call it.
        holds_slots: a finished request's slot stays taken until the wave ends (static batching).
    """

    name: str
    holds_slots: bool

    def admits(self, running: Sequence[Request]) -> bool:
        """Whether waiting requests may enter in this step, given who runs."""

    def order_key(self, request: Request) -> tuple[float, ...]:
        """Place in the waiting queue, smallest first; constant in time, so the queue is a heap."""

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        """Tokens for it in this step; 0 = not now.

        Args:
            remaining: the most this step can still take.
            whole_step: the most an otherwise empty step could take.
        """

    def victim(self, running: Sequence[Request]) -> Request:
        """Whom to preempt when KV blocks run out; `running` is in order of admission, never empty."""
