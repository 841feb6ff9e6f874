"""The three objects the engine thread and a screen share: commands in, the latest state and records out.

Nothing else crosses. The screen polls; the engine never waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

import msgspec

from engine.live.commands import Command
from engine.live.state import EngineState
from engine.stream.records import Record


class CommandQueue:
    """Commands to the engine thread, in order, from any thread."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._news = threading.Condition()

    def put(self, command: Command) -> None:
        with self._news:
            self._commands.append(command)
            self._news.notify()

    def take_all(self) -> list[Command]:
        """All commands so far, oldest first; never waits."""
        with self._news:
            commands = list(self._commands)
            self._commands.clear()
        return commands

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is a command, or the time is over; whether there is one."""
        with self._news:
            return bool(self._commands) or self._news.wait(timeout_s)


class Mailbox:
    """The newest state; an older one nobody fetched is gone (latest wins)."""

    def __init__(self, state: EngineState | None = None) -> None:
        self._state = state or EngineState()

    def publish(self, state: EngineState) -> None:
        # One reference assignment: atomic for every reader.
        self._state = state

    def publish_if_news(self, state: EngineState) -> None:
        """Publish a state under the next number, unless the newest says the same."""
        before = self._state
        state = msgspec.structs.replace(state, version=before.version)
        if before.version and msgspec.structs.asdict(state) == msgspec.structs.asdict(before):
            return
        self.publish(msgspec.structs.replace(state, version=before.version + 1))

    def latest(self) -> EngineState:
        return self._state


class History:
    """Records in order, append-only; when full the oldest are dropped.

    Args:
        limit: records kept.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self.limit = limit
        self._records: deque[Record] = deque(maxlen=limit)
        self._total = 0
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """Records appended since the start, dropped ones too."""
        return self._total

    def append(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)
            self._total += 1

    def since(self, number: int) -> tuple[int, list[Record]]:
        """Records from number `number` (0 is the first ever) on, and the number of the first returned.

        That is larger than asked for when older ones were dropped.
        """
        with self._lock:
            first = self._total - len(self._records)
            start = max(number, first)
            return start, list(islice(self._records, start - first, None))
