"""Lets the requests of a file in when they are due: all at once, or at their own arrival times.

Waits on the wall clock, for the engine clock stands still while the engine is empty. Pure otherwise: who
drives an engine asks what is due.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.runner import EncodedPrompt

Item = TypeVar("Item")


class Timetable(Generic[Item]):
    """Items in the order they are due.

    Args:
        items: each with its arrival time, seconds on a clock of its file.
        factor: how many times as fast as that clock; None: everything is due at once, in the given order.
    """

    def __init__(self, items: Sequence[tuple[float, Item]], factor: float | None) -> None:
        first = min((at for at, _ in items), default=0.0)
        timed = [(0.0 if factor is None else (at - first) / factor, item) for at, item in items]
        self._left = deque(sorted(timed, key=lambda entry: entry[0]))

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def next_s(self) -> float:
        """When the next is due, seconds since the beginning; infinity: nothing is left."""
        return self._left[0][0] if self._left else float("inf")

    def due(self, elapsed_s: float) -> list[Item]:
        """Take out what is due so long after the beginning."""
        found = []
        while self._left and self._left[0][0] <= elapsed_s:
            found.append(self._left.popleft()[1])
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """An encoded request and its number in its file, from 1."""

    number: int
    request: PromptRequest
    prompt: EncodedPrompt


class Feed:
    """Enters requests into an engine that a blocking caller steps (`session.drain`).

    Args:
        entries: what arrives.
        factor: see `Timetable`.
        submit: enqueues one and returns its id, or raises ValueError.
        on_refused: told of one that the engine cannot take, and why.
        now_s, sleep: the wall clock.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        factor: float | None,
        submit: Callable[[Engine, PromptRequest, EncodedPrompt], str],
        *,
        on_refused: Callable[[Entry, str], None],
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timetable = Timetable([(entry.request.arrives_s, entry) for entry in entries], factor)
        self._submit = submit
        self._on_refused = on_refused
        self._now_s = now_s
        self._sleep = sleep
        self._began_s: float | None = None
        #: What has entered, by request id.
        self.entered: dict[str, Entry] = {}

    def enter(self, engine: Engine) -> None:
        """Enqueue what is due; an empty engine waits for the next as long as there is one."""
        if self._began_s is None:
            self._began_s = self._now_s()
        self._enter_due(engine)
        while not engine.has_work and self._timetable:
            wait_s = self._timetable.next_s - (self._now_s() - self._began_s)
            if wait_s > 0:
                self._sleep(wait_s)
            self._enter_due(engine)

    def _enter_due(self, engine: Engine) -> None:
        assert self._began_s is not None
        for entry in self._timetable.due(self._now_s() - self._began_s):
            try:
                self.entered[self._submit(engine, entry.request, entry.prompt)] = entry
            except ValueError as error:
                self._on_refused(entry, str(error))
