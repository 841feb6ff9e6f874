"""Submits a file's requests to an engine behind a screen, when they are due.

Looked after by the engine's thread between two turns of its loop; talks to the engine through the same
queue as the screen, so that what a file asks and what a person asks go the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cbtui.following.link import Link
from engine.live.commands import PromptRequest, Submit
from engine.live.feed import Timetable


class FileFeed:
    """Says what is due and puts it into the queue.

    Args:
        requests: of the file.
        factor: their arrival times so many times as fast; None: all at once, in one command.
        raw: no chat template.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        requests: Sequence[PromptRequest],
        factor: float | None,
        link: Link,
        *,
        raw: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timetable = Timetable([(request.arrives_s, request) for request in requests], factor)
        self._link = link
        self._raw = raw
        self._now_s = now_s
        self._elapsed_s = 0.0
        self._looked_s: float | None = None

    def look(self) -> None:
        """Submit what is due. Time passes while there is a model and the engine is not paused."""
        state = self._link.mailbox.latest()
        if not self._timetable or state.model is None:
            return
        now = self._now_s()
        if self._looked_s is not None and not state.paused:
            self._elapsed_s += now - self._looked_s
        self._looked_s = now
        if due := self._timetable.due(self._elapsed_s):
            wants_chat = state.model.has_chat_template and not self._raw
            self._link.commands.put(Submit(tuple(one.through_template(wants_chat) for one in due)))
