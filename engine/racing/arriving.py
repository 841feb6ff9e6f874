"""Lets a lane's requests in: all at once, or at their own arrival times on the lane's own clock.

That clock stands still while the lane has nothing to do, so what would only be waited for is skipped: a
race is about the work, and nobody watches two idle lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.engine import Engine
from engine.live.feed import Timetable
from engine.racing.race import Entry, enter
from engine.runner import EncodedPrompt
from engine.stream.records import RequestRecord


class LaneFeed:
    """Enters requests into one lane's engine.

    Args:
        engine: the lane's.
        entries: each with its token ids, unless it brings them.
        factor: their arrival times so many times as fast; None: all at once, in the given order.
    """

    def __init__(
        self, engine: Engine, entries: Sequence[tuple[Entry, EncodedPrompt | None]], factor: float | None
    ) -> None:
        self.engine = engine
        self._timetable = Timetable(
            [(arrives_s(entry), (entry, encoded)) for entry, encoded in entries], factor
        )
        #: Seconds of the file's clock that were skipped because there was nothing to do.
        self._skipped_s = 0.0

    def enter_due(self) -> None:
        """Enqueue what has arrived by now; an empty engine gets the next one at once.

        Raises:
            ValueError: one has no tokens, or sampling parameters out of range.
        """
        now_s = self.engine.clock.now() + self._skipped_s
        self._enter(now_s)
        if not self.engine.has_work and self._timetable:
            next_s = self._timetable.next_s
            self._skipped_s += next_s - now_s
            self._enter(next_s)

    def _enter(self, elapsed_s: float) -> None:
        for entry, encoded in self._timetable.due(elapsed_s):
            enter(self.engine, entry, encoded)


def arrives_s(entry: Entry) -> float:
    """When a request arrives; one that another engine has taken in was there when it was asked for."""
    return entry.arrival_s if isinstance(entry, RequestRecord) else entry.arrives_s
