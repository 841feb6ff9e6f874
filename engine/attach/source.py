"""What the observing loop asks of a source: a server that schedules by itself, seen from outside.

One module a kind of server; `opening.py` chooses. A source knows nothing of screens, queues of commands or
pauses: `loop.py` has those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.live.state import Arriving, Failure
from engine.runner import Loading, ModelInfo
from engine.stream.records import Provenance, Record, WaitingRecord

#: How ids of requests that were sent from here begin.
OWN = "own-"
#: And the ids of those that are seen in a server's slots and were not.
OTHERS = "seen-"
#: Why a prompt waits that was not sent yet: enough others are under way.
HELD_HERE = "held_here"


class SourceLost(Exception):
    """The server does not answer, or not as it did; the message is one sentence. It may come back.

    `title` says what is wrong in some words.
    """

    title = "The server cannot be followed"


class SourceAway(SourceLost):
    """Nobody answers."""

    title = "The server is not there"


class SourceLocked(SourceLost):
    """It answers to those who have a key."""

    title = "The server wants a key"


class SourceStarting(Exception):
    """The server is on its way, this far; it is asked again soon. `provenance`: what is known of it."""

    def __init__(self, loading: Loading, provenance: Provenance) -> None:
        super().__init__(loading.stage)
        self.loading = loading
        self.provenance = provenance


class SourceFailed(Exception):
    """The server cannot run, and somebody has to see to it before it is tried again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class SourceOver(Exception):
    """Nothing more will ever come (a recorded stream has ended); the message says so in a sentence."""


class Refused(Exception):
    """What was asked of the server cannot be asked of it, or it said no; one sentence for the user."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What is known once a server has answered.

    Attributes:
        info: the model it serves, as far as it says.
        config: its limits, as far as it says; `provenance.absent` names those that mean nothing.
        provenance: whose records follow, and what in them is inferred or absent.
        refused: what this server in particular cannot be asked for, as `EngineState.refused` has it.
    """

    info: ModelInfo
    config: EngineConfig
    provenance: Provenance
    refused: tuple[tuple[str, str], ...] = ()


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue stands between two steps, where a source knows better than its last record.

    `arriving`: the first prompts sent from here that the server has not been seen to take up, of
    `arriving_count`; `num_held` of all are held back here. `num_running`: requests that run now, also those
    no record names.
    """

    waiting_count: int = 0
    waiting: tuple[WaitingRecord, ...] = ()
    arriving: tuple[Arriving, ...] = ()
    arriving_count: int = 0
    num_held: int = 0
    num_running: int = 0


class Source(Protocol):
    """A server seen from outside. Every method is called in the loop's thread, but for `close`.

    Records come in order, step numbers only rise, a request is submitted before it is in a step and
    finishes at most once, also over a loss and a return. Times are seconds since the first `open`.
    """

    def open(self) -> Opened:
        """Connect, or connect again after a loss. Waits a few seconds at most.

        Raises:
            SourceLost: nobody answers, or not as such a server does.
            SourceStarting: it is being started. Prompts may be sent already; they wait.
            SourceFailed: it cannot run.
            SourceOver: it cannot be opened a second time.
        """

    def read(self, timeout_s: float) -> Sequence[Record]:
        """Records since the last call; waits for the first of them at most so long.

        Raises:
            SourceLost, SourceFailed, SourceOver: as they say. Records read before are returned first.
        """

    def queue(self) -> Queue | None:
        """How the queue stands now; None: as the records say."""

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """Send prompts the way any client of the server does. Never waits.

        Raises:
            Refused: it takes none from here.
        """

    def cancel(self, request_id: str) -> None:
        """Take back a prompt sent from here. Never waits.

        Raises:
            Refused: somebody else sent it.
        """

    def close(self) -> None:
        """End a read under way and let go of the server, within a second. From any thread, twice too."""
