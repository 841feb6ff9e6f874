"""An engine loop on a table: say a command, turn the crank, look at the state. No thread."""

from __future__ import annotations

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import (
    Command,
    PromptRequest,
    Submit,
)
from engine.live.loop import EngineLoop
from engine.live.state import EngineState
from engine.stream.records import StepRecord


class HandClock:
    """Time moves when told, and a little at each reading so that pacing sees it pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class NoWait(CommandQueue):
    """A waiting loop would block the test: time passes on the hand clock instead."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout_s: float) -> bool:
        self._clock.now += timeout_s
        return True


class Desk:
    """A loop on a table: say a command, turn the crank, look at the state."""

    def __init__(self, runner: FakeRunner | None = None, *, started: bool = True, **options: object) -> None:
        self.time = HandClock()
        self.runner = runner or FakeRunner()
        self.commands, self.mailbox, self.history = NoWait(self.time), Mailbox(), History()
        self.loop = EngineLoop(
            options.pop("config", EngineConfig()),  # type: ignore[arg-type]
            self.runner,
            commands=self.commands,
            mailbox=self.mailbox,
            history=self.history,
            clock=EngineClock(self.time),
            new_seed=lambda: 7,
            **options,  # type: ignore[arg-type]
        )
        if started:
            self.runner.start()
            self.turn()

    def turn(self, times: int = 1) -> EngineState:
        for _ in range(times):
            self.loop.turn()
        return self.mailbox.latest()

    def say(self, *commands: Command, turns: int = 4) -> EngineState:
        for command in commands:
            self.commands.put(command)
        return self.turn(turns)

    @property
    def steps(self) -> list[StepRecord]:
        return [r for r in self.history.since(0)[1] if isinstance(r, StepRecord)]


def prompts(*texts: str, max_tokens: int = 4) -> Submit:
    return Submit(tuple(PromptRequest(prompt=text, max_tokens=max_tokens) for text in texts))
