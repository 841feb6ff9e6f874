"""What a way to batch decides: when waiting requests may enter, and how many tokens each gets.

Pure: it sees requests and numbers, holds no KV and changes nothing. Slots, blocks, the budget and the
states are the mechanism's (`scheduler.py`), once, for all. Who comes first is a policy's (`policies/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.request import Request


class Batching(Protocol):
    """One way to batch. A new one is a file with a class like this and a mode in `modes.MODES`.

    Attributes:
        holds_slots: a finished request's slot stays taken until the wave ends (static batching).
    """

    holds_slots: bool

    def admits(self, running: Sequence[Request]) -> bool:
        """Whether waiting requests may enter in this step, given who runs."""

    def chunk(self, request: Request, remaining: int, whole_step: int) -> int:
        """Tokens for it in this step; 0 = not now.

        Args:
            remaining: the most this step can still take, at least 1.
            whole_step: the most an otherwise empty step could take.
        """
