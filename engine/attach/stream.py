"""A stream of our own records over a Unix socket: a header line, then a record a line, as in a trace file.

The writer is whoever schedules (a scheduler subclass inside a server, for one); it owns the socket and
listens. Steps and requests are the writer's own, so nothing in them is renumbered.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from pathlib import Path

from engine.attach.source import Opened, Queue, Refused, SourceLost, SourceOver
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.stream.records import Provenance, Record, StepRecord, TraceHeader
from engine.stream.trace import TraceError, decode_line
from engine.stream.trace_files import info_of

#: How long the writer may take to say its header, seconds.
HEADER_S = 5.0
_CHUNK = 1 << 18
#: The longest line a writer may send: far beyond any record, so that a wrong peer fills no memory.
_LINE_MOST = 1 << 26


class StreamSource:
    """Implements `Source` on a socket.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._lines = 0
        self._step = 0

    def open(self) -> Opened:
        """Connect and read the header."""
        self.close()
        self._buffer.clear()
        self._lines = 0
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(HEADER_S)
            self._socket.connect(str(self._path))
            while b"\n" not in self._buffer:
                self._receive()
        except OSError as exc:
            raise SourceLost(f"{self._path} does not answer: {exc.strerror or exc}") from None
        header = self._decode(self._take_lines(1)[0])
        if not isinstance(header, TraceHeader):
            raise SourceLost(f"{self._path} is no stream of records: its first line is no header")
        return Opened(
            info=info_of(header),
            config=EngineConfig(block_size=header.block_size, max_model_len=max(2, header.max_model_len)),
            provenance=header.provenance or Provenance(engine="cbtui", address=f"unix:{self._path}"),
        )

    def read(self, timeout_s: float) -> Sequence[Record]:
        """Whole lines since the last call."""
        if self._socket is None:
            raise SourceLost(f"{self._path} is closed")
        if b"\n" not in self._buffer:
            try:
                if not select.select([self._socket], [], [], timeout_s)[0]:
                    return ()
                self._receive()
            except (OSError, ValueError) as exc:  # ValueError: closed meanwhile
                raise SourceLost(f"{self._path} broke off: {exc}") from None
        return [self._record(line) for line in self._take_lines()]

    def queue(self) -> Queue | None:
        return None

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        raise Refused("this stream only tells what happens; prompts go to the server's own address")

    def cancel(self, request_id: str) -> None:
        raise Refused("this stream only tells what happens; nothing was sent from here")

    def close(self) -> None:
        """Let go of the socket."""
        one, self._socket = self._socket, None
        if one is not None:
            one.close()

    # -- lines --------------------------------------------------------------------------------

    def _receive(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(_CHUNK)
        if not data:
            raise SourceLost(f"{self._path} was closed by the server")
        self._buffer += data
        if len(self._buffer) > _LINE_MOST and b"\n" not in self._buffer:
            raise SourceLost(f"{self._path} is no stream of records: no line of it ends")

    def _take_lines(self, at_most: int = -1) -> list[bytes]:
        *lines, rest = bytes(self._buffer).split(b"\n", at_most)
        self._buffer = bytearray(rest)
        return lines

    def _decode(self, line: bytes) -> TraceHeader | Record:
        self._lines += 1
        try:
            return decode_line(line, self._lines)
        except TraceError as exc:
            raise SourceLost(f"{self._path}, {exc}") from None

    def _record(self, line: bytes) -> Record:
        record = self._decode(line)
        if isinstance(record, TraceHeader):
            raise SourceLost(f"{self._path}, line {self._lines}: a second header")
        if isinstance(record, StepRecord):
            if record.step <= self._step:
                raise SourceOver("the server was started anew; attach again to follow it")
            self._step = record.step
        return record
