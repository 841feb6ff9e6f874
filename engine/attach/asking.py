"""What every source has that asks a server over HTTP: the connection, a clock, and prompts sent from here.

Knows nothing of what a kind of server says of its steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count

from engine.attach.address import Address, Key
from engine.attach.http import Http
from engine.attach.openai import N_TOP
from engine.attach.prompts import AT_ONCE, Encode, Own, Prompts
from engine.attach.seen_records import SeenRecords
from engine.attach.source import HELD_HERE, Queue
from engine.live.commands import PromptRequest
from engine.live.state import Arriving
from engine.stream.records import WAITING_SHOWN, WaitingRecord


class AskingSource:
    """The half of `Source` that is the same whatever is asked; `open`, `read` and `queue` are not.

    Args:
        address, key: of the server.
        now_s: monotonic seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        address: Address,
        key: Key,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address, self._key = address, key
        self._clock, self._sleep = now_s, sleep
        self._started_s = now_s()
        self._connection: Http | None = None
        self._prompts: Prompts | None = None
        self._indices = count()
        self._records = SeenRecords(self._indices)

    def _now(self) -> float:
        return self._clock() - self._started_s

    @property
    def _http(self) -> Http:
        """The connection of the last `_connect`."""
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        """Connect anew; what was asked before is over."""
        if self._connection is not None:
            self._connection.close()
        self._connection = Http(self._address, self._key)

    def _take_prompts(
        self, model: str, encode: Encode | None, n_top: int = N_TOP, at_once: int = AT_ONCE
    ) -> None:
        """From now on prompts can be sent, as `Prompts` does it; those sent before a loss stay known."""
        if self._prompts is not None:
            self._prompts.model = model
        else:
            self._prompts = Prompts(
                self._address,
                self._key,
                model,
                encode,
                self._now,
                self._indices,
                n_top=n_top,
                at_once=at_once,
            )

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._records.sent(self._prompts.send(requests))

    def cancel(self, request_id: str) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._prompts.cancel(request_id)

    def close(self) -> None:
        """See `Source`."""
        if self._prompts is not None:
            self._prompts.close()
        if self._connection is not None:
            self._connection.close()


def queue_of(
    owns: Sequence[Own],
    reason: Callable[[Own], str],
    *,
    waiting_count: int = 0,
    waiting: tuple[WaitingRecord, ...] = (),
    num_running: int = 0,
) -> Queue:
    """A queue with prompts sent from here that have not arrived: named as far as a record names them.

    Args:
        reason: why one waits that is on its way.
    """
    return Queue(
        waiting_count=waiting_count,
        waiting=waiting,
        num_running=num_running,
        arriving=tuple(
            Arriving(
                own.request_id,
                own.index,
                own.request.prompt,
                own.request.max_tokens,
                HELD_HERE if own.is_held else reason(own),
            )
            for own in owns[:WAITING_SHOWN]
        ),
        arriving_count=len(owns),
        num_held=sum(own.is_held for own in owns),
    )
