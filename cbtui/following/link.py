"""What the screen shares with an engine, and who drives that engine. Tests bring their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engine.live.channels import CommandQueue, History, Mailbox


@dataclass(frozen=True, slots=True)
class Link:
    """The only three objects both threads touch."""

    mailbox: Mailbox = field(default_factory=Mailbox)
    history: History = field(default_factory=History)
    commands: CommandQueue = field(default_factory=CommandQueue)


class EngineDriver(Protocol):
    """Runs the engine's side of a link."""

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Block in a thread of its own until a `Close` command, `close()` or `should_stop()`."""

    def close(self) -> None:
        """End the model at once, within a second, whatever is under way. From any thread, twice too."""
