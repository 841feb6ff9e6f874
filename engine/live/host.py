"""Has a guest in the engine's thread: lends it the model, gives it its turns and answers, sends it away.

`guest.py` is the contract. Does no step of its own and knows nothing of what a guest does.
"""

from __future__ import annotations

from engine.engine import Engine
from engine.live.guest import Guest, Lent
from engine.runner import Encoded


class Host:
    """The guest there is, one at a time; false while there is none."""

    def __init__(self) -> None:
        self._guest: Guest | None = None

    def __bool__(self) -> bool:
        return self._guest is not None

    def lend(self, guest: Guest, engine: Engine | None) -> None:
        """Bring a guest in and lend it an engine's model; one that is there already is sent away.

        Args:
            engine: None: its model is not there.

        Raises:
            RunnerDied: the runner is gone.
        """
        self._guest = guest
        if engine is None:
            guest.lost("the model is not loaded")
        else:
            guest.begin(Lent(engine.runner, engine.info, engine.epoch, engine.token_bytes, engine.n_top))

    def take(self, event: Encoded) -> None:
        """An answer to a guest's question; one whose guest is gone is nobody's.

        Raises:
            RunnerDied: the runner is gone.
        """
        if self._guest is not None:
            self._guest.take(event)

    def turn(self) -> float:
        """Let the guest do a step; seconds until its next. One that wants nothing more is gone then.

        Raises:
            RunnerDied: the runner is gone.
        """
        assert self._guest is not None
        wait_s = self._guest.turn()
        if not self._guest.is_over:
            return wait_s
        self._guest = None
        return 0.0

    def lost(self, reason: str) -> None:
        """The model is gone: the guest says so, and stays until it is over."""
        if self._guest is not None:
            self._guest.lost(reason)

    def send_away(self, reason: str) -> None:
        """There is nothing left to lend."""
        self.lost(reason)
        self._guest = None
