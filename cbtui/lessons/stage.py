"""Where a lesson plays: on the toy model at once, or on the loaded model in the engine's thread.

A stage steps all lanes of a lesson by one round and shows what came of it; it knows nothing of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cbtui.following.follower import Follower
from cbtui.racing.setup import WARM_UP_STEPS
from engine.live.commands import Close, Step
from engine.live.guest import Lend, Lent
from engine.racing.guest import RaceGuest
from engine.racing.race import LaneSpec
from engine.runner import Encoded
from engine.toy import ToyRunner

#: Likeliest words recorded beside each sampled one.
N_TOP = 3


class Stage(Protocol):
    """The lanes of a lesson, one engine each."""

    @property
    def followers(self) -> Sequence[Follower]:
        """What each lane shows, in their order."""

    @property
    def name(self) -> str:
        """Which model plays."""

    @property
    def is_instant(self) -> bool:
        """Whether a round is over as soon as it was asked for."""

    @property
    def is_settled(self) -> bool:
        """Whether all rounds asked for are over, as far as the last `poll` saw."""

    @property
    def failure(self) -> str:
        """Why nothing more comes, in a sentence; empty: something does."""

    def ask_round(self) -> None:
        """Ask for one step of every lane that has work."""

    def poll(self) -> bool:
        """Take in what is new; whether anything was."""

    def close(self) -> None:
        """Give back what was borrowed."""


#: Puts lanes on a stage.
SetStage = Callable[[Sequence[LaneSpec]], Stage]


class ToyStage:
    """A toy model in the caller's thread: a step takes about a millisecond. Implements `Stage`."""

    name = "toy model"
    is_instant = True
    is_settled = True
    failure = ""

    def __init__(self, lanes: Sequence[LaneSpec]) -> None:
        runner = ToyRunner()
        runner.start()
        self._guest = RaceGuest(lanes, paused=True, source=lambda: runner.now_s)
        self._guest.begin(Lent(runner, runner.info, 1, token_bytes=runner.token_bytes, n_top=N_TOP))
        for event in runner.poll():
            if isinstance(event, Encoded):
                self._guest.take(event)
        self.followers = [Follower(one.mailbox, one.history) for one in self._guest.channels]

    def ask_round(self) -> None:
        self._guest.commands.put(Step())
        while self._guest.turn() <= 0:
            pass

    def poll(self) -> bool:
        news = [follower.poll() for follower in self.followers]
        return any(news)

    def close(self) -> None:
        """Nothing was borrowed."""


class LentStage:
    """The loaded model, lent by the engine's thread, whose own engine stands still. Implements `Stage`.

    Args:
        lanes: of the lesson.
        lend: brings a guest into the engine's thread.
        name: the model's.
    """

    is_instant = False

    def __init__(self, lanes: Sequence[LaneSpec], lend: Callable[[Lend], None], name: str) -> None:
        self.name = name
        self._guest = RaceGuest(lanes, paused=True, warm_up_steps=WARM_UP_STEPS)
        self.followers = [Follower(one.mailbox, one.history) for one in self._guest.channels]
        self._rounds = 0
        lend(Lend(self._guest))

    @property
    def is_settled(self) -> bool:
        states = [follower.state for follower in self.followers]
        return all(
            state.status == "idle" or (state.status == "paused" and state.step >= self._rounds)
            for state in states
        )

    @property
    def failure(self) -> str:
        failures = (follower.state.failure for follower in self.followers)
        return next((f"{found.stage}: {found.message}" for found in failures if found is not None), "")

    def ask_round(self) -> None:
        self._rounds += 1
        self._guest.commands.put(Step())

    def poll(self) -> bool:
        news = [follower.poll() for follower in self.followers]
        return any(news)

    def close(self) -> None:
        self._guest.commands.put(Close())
