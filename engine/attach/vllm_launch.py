"""A vLLM of this program's own: started, followed step by step, sent prompts, ended.

Its steps come over the socket its scheduler writes to, prompts go the way any client's do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

import msgspec

from engine.attach.address import Key, read_address
from engine.attach.http import Http
from engine.attach.own_in_stream import OwnInStream, refusal
from engine.attach.prompts import Prompts
from engine.attach.served import served_model
from engine.attach.source import (
    HELD_HERE,
    Opened,
    Queue,
    Refused,
    SourceFailed,
    SourceLost,
    SourceStarting,
)
from engine.attach.stream import StreamSource
from engine.attach.vllm_child import VllmChild
from engine.live.commands import PromptRequest
from engine.live.standing import standing_after
from engine.live.state import Arriving, Failure
from engine.stream.records import WAITING_SHOWN, Provenance, QuietRecord, Record, StepRecord

#: Of a data-parallel server the first rank is followed: what is typed goes there.
FOLLOWED_RANK = {"X-data-parallel-rank": "0"}
_UNTOLD = "it says so once it runs"
#: Prompts under way: nobody else's are in its queue.
_AT_ONCE = 64
_STARTING = Provenance(engine="vLLM", absent=(("budget", _UNTOLD), ("mode", _UNTOLD)))


class LaunchedVllm:
    """Implements `Source` on a child.

    Args:
        child: not started yet.
    """

    def __init__(self, child: VllmChild) -> None:
        self._child = child
        self._stream = StreamSource(child.socket_path)
        self._prompts: Prompts | None = None
        self._early: list[PromptRequest] = []
        self._is_closed = False
        self._own = OwnInStream()
        self._last: StepRecord | None = None
        self._late: list[QuietRecord] = []

    def open(self) -> Opened:
        """Start it, and wait for it in many short calls.

        Raises:
            SourceStarting: it is on its way.
            SourceFailed: it has ended, or cannot be started.
        """
        if self._is_closed:
            raise SourceLost("vLLM was ended")
        child = self._child
        if not child.is_started:
            try:
                child.start()
            except OSError as exc:
                raise SourceFailed(Failure("vLLM", f"it cannot be started: {exc.strerror or exc}")) from None
        self._require_alive()
        model = self._served() if child.socket_path.exists() else None
        if model is None:
            raise SourceStarting(child.progress(), _STARTING)
        opened = self._stream.open()
        # No logprobs: the first one asked for costs a vLLM on the CPU a compilation of 13 s, in a step.
        self._prompts = Prompts(
            read_address(child.url),
            Key(),
            model,
            None,
            time.monotonic,
            count(),
            n_top=0,
            headers=FOLLOWED_RANK,
            at_once=_AT_ONCE,
        )
        early, self._early = self._early, []
        self.submit(early)
        return msgspec.structs.replace(
            opened, provenance=msgspec.structs.replace(opened.provenance, address=child.url), refused=()
        )

    def read(self, timeout_s: float) -> Sequence[Record]:
        """What the stream says, with the ends of prompts sent from here; and those it never showed."""
        try:
            records = list(self._stream.read(timeout_s))
        except SourceLost:
            # A moment for its exit code: the socket is closed first.
            deadline = time.monotonic() + 1.0
            while self._child.exit_code() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            self._require_alive()
            raise
        self._own.add(records, time.monotonic())
        if self._prompts is not None:
            self._prompts.news()
        told = self._own.take(time.monotonic())
        for record in told:
            if isinstance(record, QuietRecord):
                self._late.append(record)
            else:
                self._last, self._late = record, []
        return [*told, *self._refused()]

    def _refused(self) -> list[Record]:
        step, time_s = (self._last.step, self._last.end_s) if self._last else (0, 0.0)
        return [refusal(own, self._stream.take_index(), step, time_s) for own in self._own.take_refused()]

    def queue(self) -> Queue | None:
        """As the records say, and behind it what the server has not taken up yet."""
        arriving = self._arriving()
        if not arriving:
            return None
        now = standing_after(self._last, self._late)
        return Queue(
            waiting_count=now.waiting_count,
            waiting=now.waiting,
            arriving=arriving[:WAITING_SHOWN],
            arriving_count=len(arriving),
            num_held=sum(one.reason == HELD_HERE for one in arriving),
        )

    def _arriving(self) -> tuple[Arriving, ...]:
        early = [
            Arriving(f"early-{number}", number, request.prompt, request.max_tokens, "loading")
            for number, request in enumerate(self._early)
        ]
        sent = [
            Arriving(
                own.request_id,
                own.index,
                own.request.prompt,
                own.request.max_tokens,
                HELD_HERE if own.is_held else "encoding",
            )
            for own in self._own.unseen
        ]
        return (*early, *sent)

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """Send prompts; before it has started they are kept."""
        if self._prompts is None:
            self._early += requests
            return
        self._own.sent(self._prompts.send(requests))

    def cancel(self, request_id: str) -> None:
        own = self._own.get(request_id)
        if own is None or self._prompts is None:
            raise Refused("another client sent it: only what was sent from here can be taken back")
        self._prompts.cancel(own.request_id)

    def close(self) -> None:
        """End it: its keeper sees to that however long it takes."""
        self._is_closed = True
        if self._prompts is not None:
            self._prompts.close()
        self._stream.close()
        self._child.close()

    # -- the child ----------------------------------------------------------------------------

    def _require_alive(self) -> None:
        code = self._child.exit_code()
        if code is None:
            return
        words = self._child.last_words()
        if self._prompts is not None:
            self._prompts.close()
            self._prompts = None
        self._child.end()
        raise SourceFailed(
            Failure("vLLM", f"it ended with exit code {code}: {words}", f"less {self._child.log}")
        )

    def _served(self) -> str | None:
        """The model as prompts must name it, which need not be as in the stream; None: nobody answers yet."""
        http = Http(read_address(self._child.url), Key())
        try:
            return served_model(http)[0] if http.get("/health")[0] == 200 else None
        except SourceLost:
            return None
        finally:
            http.close()
