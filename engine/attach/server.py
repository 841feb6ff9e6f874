"""Finds out what answers at an address, and follows it as that kind of server."""

from __future__ import annotations

from collections.abc import Sequence

from engine.attach.address import Address, Key
from engine.attach.http import Http
from engine.attach.llama import LlamaSource
from engine.attach.source import Opened, Queue, Refused, Source, SourceAway, SourceLost
from engine.live.commands import PromptRequest
from engine.stream.records import Record


class ServerSource:
    """Implements `Source` by the source that fits, once one has answered.

    Args:
        address, key: of the server.
    """

    def __init__(self, address: Address, key: Key) -> None:
        self._address, self._key = address, key
        self._source: Source | None = None
        self._is_closed = False

    def open(self) -> Opened:
        """See `Source`."""
        if self._source is None:
            self._source = self._found()
        if self._is_closed:
            self._source.close()
        return self._source.open()

    def _found(self) -> Source:
        """
        Raises:
            SourceLost: nobody answers, or nobody that can be followed.
        """
        http = Http(self._address, self._key)
        try:
            metrics = http.ask("/metrics") or b""
        except SourceAway as exc:
            http.close()
            hint = self._address.hint
            raise SourceAway(f"{exc}; {hint}" if hint else str(exc)) from None
        try:
            if b"vllm:" in metrics:
                from engine.attach.vllm import VllmSource

                return VllmSource(self._address, self._key)
            # In this order: asking for its slots wakes a llama.cpp server that sleeps.
            if isinstance(http.json("/props"), dict) or isinstance(http.json("/slots"), list):
                return LlamaSource(self._address, self._key)
            if http.json("/v1/models") is not None:
                raise SourceLost(
                    f"{self._address} answers as an OpenAI server does, but tells nothing of its steps: "
                    "neither llama.cpp's /slots nor vLLM's /metrics is there"
                )
            raise SourceLost(f"{self._address} answers, but neither as llama.cpp's server nor as vLLM does")
        finally:
            http.close()

    def read(self, timeout_s: float) -> Sequence[Record]:
        """See `Source`."""
        return self._opened().read(timeout_s)

    def queue(self) -> Queue | None:
        """See `Source`."""
        return self._source.queue() if self._source else None

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        """See `Source`."""
        self._opened().submit(requests)

    def cancel(self, request_id: str) -> None:
        """See `Source`."""
        self._opened().cancel(request_id)

    def close(self) -> None:
        """See `Source`."""
        self._is_closed = True
        if self._source is not None:
            self._source.close()

    def _opened(self) -> Source:
        if self._source is None:
            raise Refused("the server has not answered yet")
        return self._source
