"""Draft tokens in a step's record (speculative decoding), as `records` has them."""

from __future__ import annotations

from typing import Literal

import msgspec

#: What became of a draft. `unused`: it was right, but its request ended before it.
Fate = Literal["accepted", "unused", "rejected"]


class Drafts(msgspec.Struct, frozen=True):
    """Guesses at a sequence's next tokens, fed behind its last one and checked all at once in that pass.

    Attributes:
        fed: how many; they are the last tokens of their segment.
        accepted: the first so many of them were accepted: the model chose the same. Keys of these stay; those
            of the others are given up, and the next step writes over them.
        used: those accepted that became output tokens. Fewer, where the request ended among them.
    """

    fed: int
    accepted: int
    used: int

    @property
    def rejected(self) -> int:
        return self.fed - self.accepted

    @property
    def wasted(self) -> int:
        """Those that came to nothing: rejected, or behind the request's end."""
        return self.fed - self.used

    def fate(self, number: int) -> Fate:
        """What became of a draft, by its number from 0."""
        if number < self.used:
            return "accepted"
        return "unused" if number < self.accepted else "rejected"
