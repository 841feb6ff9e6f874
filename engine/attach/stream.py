"""A stream over a Unix socket: our own records, a header line, then a record a line, as in a trace file; or
the lines of a recording vLLM (`vllm_stream.py`).

The writer is whoever schedules (a scheduler subclass inside a server, for one); it owns the socket and
listens. Of our own records nothing is renumbered.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.attach.source import Opened, Queue, Refused, SourceAway, SourceLost, SourceOver
from engine.attach.vllm_lines import is_header
from engine.attach.vllm_stream import Unfit, VllmLines
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.stream.records import Provenance, Record, StepRecord, TraceHeader
from engine.stream.trace import TraceError, decode_line
from engine.stream.trace_files import info_of

#: How long the writer may take to say its header, seconds.
HEADER_S = 5.0
_CHUNK = 1 << 18
_NO_PROMPTS = "this stream only tells what happens; prompts go to the server's own address"
_NO_CANCEL = "this stream only tells what happens; nothing was sent from here"
#: What a stream cannot be asked for, as `EngineState.refused` has it.
REFUSED = (("prompts", _NO_PROMPTS), ("cancel", _NO_CANCEL))
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
        self._reader: TraceLines | VllmLines | None = None

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
            raise SourceAway(f"{self._path} does not answer: {exc.strerror or exc}") from None
        line, self._lines = self._take_lines(1)[0], 1
        if self._reader is None or isinstance(self._reader, VllmLines) != is_header(line):
            address = f"unix:{self._path}"
            self._reader = VllmLines(address) if is_header(line) else TraceLines(address)
        try:
            return msgspec.structs.replace(self._reader.begin(line), refused=REFUSED)
        except Unfit as exc:
            raise SourceOver(str(exc)) from None
        except TraceError as exc:
            raise SourceLost(f"{self._path} is no stream of records: {exc}") from None

    def read(self, timeout_s: float) -> Sequence[Record]:
        """Whole lines since the last call."""
        if self._socket is None:
            raise SourceAway(f"{self._path} is closed")
        if b"\n" not in self._buffer:
            try:
                if not select.select([self._socket], [], [], timeout_s)[0]:
                    return ()
                self._receive()
            except (OSError, ValueError) as exc:  # ValueError: closed meanwhile
                raise SourceAway(f"{self._path} broke off: {exc}") from None
        return [record for line in self._take_lines() for record in self._records(line)]

    def queue(self) -> Queue | None:
        return None

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        raise Refused(_NO_PROMPTS)

    def cancel(self, request_id: str) -> None:
        raise Refused(_NO_CANCEL)

    def close(self) -> None:
        """Let go of the socket."""
        one, self._socket = self._socket, None
        if one is not None:
            one.close()

    def take_index(self) -> int:
        """The arrival number of a request that the stream itself will never show."""
        assert isinstance(self._reader, VllmLines)
        return self._reader.take_index()

    # -- lines --------------------------------------------------------------------------------

    def _receive(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(_CHUNK)
        if not data:
            if isinstance(self._reader, VllmLines) and self._reader.over:
                raise SourceOver(self._reader.over)
            raise SourceAway(f"{self._path} was closed by the server")
        self._buffer += data
        if len(self._buffer) > _LINE_MOST and b"\n" not in self._buffer:
            raise SourceLost(f"{self._path} is no stream of records: no line of it ends")

    def _take_lines(self, at_most: int = -1) -> list[bytes]:
        *lines, rest = bytes(self._buffer).split(b"\n", at_most)
        self._buffer = bytearray(rest)
        return lines

    def _records(self, line: bytes) -> Sequence[Record]:
        assert self._reader is not None
        self._lines += 1
        try:
            return self._reader.records(line, self._lines)
        except TraceError as exc:
            raise SourceLost(f"{self._path}, {exc}") from None


class TraceLines:
    """Reads the lines of a trace, as they come.

    Args:
        address: where they come from.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._step = 0

    def begin(self, line: bytes) -> Opened:
        """Take the header.

        Raises:
            TraceError: it is none.
        """
        header = decode_line(line, 1)
        if not isinstance(header, TraceHeader):
            raise TraceError("its first line is no header")
        return Opened(
            info=info_of(header),
            config=EngineConfig(block_size=header.block_size, max_model_len=max(2, header.max_model_len)),
            provenance=header.provenance or Provenance(engine="cbtui", address=self._address),
        )

    def records(self, line: bytes, number: int) -> Sequence[Record]:
        """The record of a later line.

        Raises:
            TraceError: it is none.
            SourceOver: the steps begin anew.
        """
        record = decode_line(line, number)
        if isinstance(record, TraceHeader):
            raise TraceError(f"line {number}: a second header")
        if isinstance(record, StepRecord):
            if record.step <= self._step:
                raise SourceOver("the server was started anew; attach again to follow it")
            self._step = record.step
        return [record]
