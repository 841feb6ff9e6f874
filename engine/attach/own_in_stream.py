"""Prompts sent from here to a vLLM that tells every step: found again in its stream, and how each ended.

A prompt is recognised by the seed it was sent with. What met a stop string is aborted by vLLM's web server,
so that the stream alone does not say why: the server's answer does, and comes at about the same time. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from engine.attach.prompts import Own
from engine.stream.records import STOP_OR_ABORT, Events, Finish, QuietRecord, Record, RequestRecord

#: How long a record waits for the answer that says how a request in it ended, seconds.
ANSWER_S = 1.0


class OwnInStream:
    """Takes records as they come, gives them out as far as they are known."""

    def __init__(self) -> None:
        #: By the seed they were sent with, in their order: those the stream has not shown yet.
        self._unseen: dict[int, deque[Own]] = {}
        #: By their ids in the stream: those that have not ended.
        self._seen: dict[str, Own] = {}
        self._held: deque[tuple[float, Record]] = deque()

    def sent(self, owns: Iterable[Own]) -> None:
        """Prompts were sent."""
        for own in owns:
            self._unseen.setdefault(own.seed, deque()).append(own)

    @property
    def unseen(self) -> list[Own]:
        """Those the stream has not shown yet, in the order they were sent."""
        return sorted((own for owns in self._unseen.values() for own in owns), key=lambda own: own.index)

    def get(self, request_id: str) -> Own | None:
        """The prompt sent from here that a request of the stream is; None: it is another's, or has ended."""
        return self._seen.get(request_id)

    def add(self, records: Iterable[Record], now_s: float) -> None:
        """Records came."""
        for record in records:
            for request in record.events.submitted:
                if owns := self._unseen.get(request.seed):
                    self._seen[request.request_id] = owns.popleft()
            self._held.append((now_s, record))

    def take(self, now_s: float) -> list[Record]:
        """The records up to one that an answer is still awaited for."""
        taken = []
        while self._held and (now_s - self._held[0][0] > ANSWER_S or not self._awaits(self._held[0][1])):
            taken.append(self._told(self._held.popleft()[1]))
        return taken

    def take_refused(self) -> list[Own]:
        """Those the server said no to; the stream will never show them."""
        over = [own for own in self.unseen if own.is_over and own.error]
        for own in over:
            self._unseen[own.seed].remove(own)
        return over

    def _awaits(self, record: Record) -> bool:
        return any(
            finish.reason == STOP_OR_ABORT and (own := self.get(finish.request_id)) and not own.end
            for finish in record.events.finished
        )

    def _told(self, record: Record) -> Record:
        """A record with the ends of our own prompts as the answers have them."""
        finished = tuple(self._end(one) for one in record.events.finished)
        if finished == record.events.finished:
            return record
        return msgspec.structs.replace(
            record, events=msgspec.structs.replace(record.events, finished=finished)
        )

    def _end(self, finish: Finish) -> Finish:
        own = self._seen.pop(finish.request_id, None)
        if own is None or finish.reason != STOP_OR_ABORT or not own.end:
            return finish
        if own.end != "stop":
            return msgspec.structs.replace(finish, reason="abort", error=own.error)
        if not own.stop_string:
            return msgspec.structs.replace(finish, reason="stop")
        return msgspec.structs.replace(
            finish, reason="stop", stop_string=own.stop_string, num_text_bytes=own.num_text_bytes
        )


def refusal(own: Own, index: int, step: int, time_s: float) -> QuietRecord:
    """What is recorded of a prompt the server said no to: it arrives and ends at once."""
    request = RequestRecord(own.request_id, index, (), own.request.prompt, own.request.max_tokens, time_s)
    finish = Finish(own.request_id, "error", None, 0, time_s, own.error)
    return QuietRecord(step, time_s, Events(submitted=(request,), finished=(finish,)))
