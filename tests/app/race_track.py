"""Runs a race's guest by hand, on the fake runner; a step takes 50 ms and 1 ms a token."""

from __future__ import annotations

from engine.fake import FakeRunner, fake_token_bytes
from engine.live.commands import Step
from engine.live.guest import Lent
from engine.racing.guest import RaceGuest
from engine.runner import Encoded
from engine.step.plan import Plan, Reply


class TimedRunner(FakeRunner):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def run(self, plan: Plan) -> Reply:
        self.now += 0.05 + 0.001 * sum(len(row.token_ids) for row in plan.rows)
        return super().run(plan)


class Track:
    """Stands in for the engine's thread."""

    def __init__(self, guest: RaceGuest) -> None:
        self.runner = TimedRunner()
        self.runner.start()
        self.guest = guest
        self.guest._source = lambda: self.runner.now
        self.guest.begin(Lent(self.runner, self.runner.info, 1, fake_token_bytes, 1))
        for event in self.runner.poll():
            if isinstance(event, Encoded):
                self.guest.take(event)

    def rounds(self, count: int) -> None:
        self.guest.commands.put(Step(count))
        self.turns()

    def turns(self) -> None:
        while self.guest.turn() <= 0:
            pass

    def to_the_end(self) -> None:
        self.rounds(100_000)
