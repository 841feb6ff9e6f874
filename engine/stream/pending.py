"""Events gathered since the last record, handed to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from engine.request import FINISH_REASONS, Request
from engine.stream.records import (
    Admission,
    Change,
    Events,
    Finish,
    Preemption,
    Release,
    RequestRecord,
    Verification,
)


class BlockMoves(NamedTuple):
    """What happened to KV blocks: see `Events`."""

    allocated: int = 0
    freed: int = 0
    shared: int = 0
    evicted: int = 0


NO_MOVES = BlockMoves()


class PendingEvents:
    """Collects what happens between two records.

    Args:
        token_bytes: a token id's bytes, written once in the stream for every id; None leaves them out.
    """

    def __init__(self, token_bytes: Callable[[int], bytes] | None) -> None:
        self._token_bytes = token_bytes
        self._seen_tokens: set[int] = set()
        self._submitted: list[RequestRecord] = []
        self._changed: list[Change] = []
        self._finished: list[Finish] = []
        self._released: list[Release] = []
        self._errors: list[str] = []
        self._verified: list[Verification] = []
        self._barrier = False

    @property
    def is_empty(self) -> bool:
        ends = (self._finished, self._released, self._errors, self._verified)
        return not any((self._submitted, self._changed, *ends)) and not self._barrier

    def submitted(self, request: RequestRecord) -> None:
        self._submitted.append(request)

    def changed(self, name: str, before: str, after: str) -> None:
        self._changed.append(Change(name, before, after))

    def finished(self, request: Request, slot: int | None, time_s: float, error: str = "") -> None:
        reason = FINISH_REASONS[request.status]
        self._finished.append(
            Finish(
                request.request_id,
                reason,
                slot,
                request.num_output_tokens,
                time_s,
                error,
                request.stop_string,
                request.num_text_bytes,
            )
        )

    def released(self, releases: Iterable[Release], barrier: bool) -> None:
        self._released += releases
        self._barrier |= barrier

    def error(self, message: str) -> None:
        self._errors.append(message)

    def verified(self, verification: Verification) -> None:
        self._verified.append(verification)

    def take(
        self,
        *,
        admitted: tuple[Admission, ...] = (),
        preempted: tuple[Preemption, ...] = (),
        released_before: tuple[Release, ...] = (),
        sampled: Iterable[int] = (),
        blocks: BlockMoves = NO_MOVES,
    ) -> Events:
        """Everything gathered, with what the step itself did; starts empty again."""
        ids = [token for request in self._submitted for token in request.prompt_token_ids]
        ids += [one.alone_token_id for one in self._verified if one.alone_token_id is not None]
        events = Events(
            submitted=tuple(self._submitted),
            changed=tuple(self._changed),
            admitted=admitted,
            preempted=preempted,
            finished=tuple(self._finished),
            released=(*released_before, *self._released),
            barrier=self._barrier,
            blocks_allocated=blocks.allocated,
            blocks_freed=blocks.freed,
            blocks_shared=blocks.shared,
            blocks_evicted=blocks.evicted,
            tokens=self._new_tokens([*ids, *sampled]),
            errors=tuple(self._errors),
            verified=tuple(self._verified),
        )
        self._submitted, self._changed, self._finished = [], [], []
        self._released, self._errors, self._verified, self._barrier = [], [], [], False
        return events

    def _new_tokens(self, token_ids: Iterable[int]) -> tuple[tuple[int, bytes], ...]:
        if self._token_bytes is None:
            return ()
        new = [token for token in dict.fromkeys(token_ids) if token not in self._seen_tokens]
        self._seen_tokens.update(new)
        return tuple((token, self._token_bytes(token)) for token in new)
