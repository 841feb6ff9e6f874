"""A guest of the engine's thread: something that borrows the loaded model for a while.

While it is there the loop's own engine stands still and stays as it is. A race is one. This module owns
the contract alone; the loop knows nothing else of its guests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.runner import Encoded, ModelInfo, ModelRunner

#: Tickets from here on are a guest's; the loop's own count up from 0.
GUEST_TICKETS = 1 << 40


@dataclass(frozen=True, slots=True)
class Lent:
    """What a guest is lent.

    Attributes:
        runner: loaded; arena 0 is the loop's own and not to be touched.
        info, epoch: of the loaded model.
        token_bytes: a token id's bytes; None: not known.
        n_top: likeliest tokens to record beside each sampled one.
    """

    runner: ModelRunner
    info: ModelInfo
    epoch: int
    token_bytes: Callable[[int], bytes] | None = None
    n_top: int = 0


class Guest(Protocol):
    """Every method is called in the engine's thread."""

    def begin(self, lent: Lent) -> None:
        """The model is there.

        Raises:
            RunnerDied: the runner is gone.
        """

    def take(self, event: Encoded) -> None:
        """An answer to a ticket from `GUEST_TICKETS` on.

        Raises:
            RunnerDied: the runner is gone.
        """

    def turn(self) -> float:
        """Do at most one step; seconds until the next call is wanted, infinity where only news matters.

        Raises:
            RunnerDied: the runner is gone.
        """

    def lost(self, reason: str) -> None:
        """The model is gone, in a turn or between two: say so, and do no more steps."""

    @property
    def is_over(self) -> bool:
        """Whether it wants nothing more; it is never called again then."""


class Lend(msgspec.Struct, frozen=True):
    """The command that brings a guest in; one that is there already is sent away."""

    guest: Guest
