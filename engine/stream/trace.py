"""Trace files: JSON Lines, a header first, then one record a line.

A reader keeps what it could read and says which line it could not, and why.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import count
from typing import IO

import msgspec

from engine.stream.records import SCHEMA_VERSION, QuietRecord, Record, StepRecord, TraceHeader
from engine.stream.soundness import Soundness

#: The longest line that is read; a record of a prompt of a million tokens is a tenth of it.
MOST_LINE_BYTES = 64 * 2**20

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TraceHeader | StepRecord | QuietRecord)


class TraceError(ValueError):
    """A trace that cannot be read (on): the message names the line and the reason."""


class TraceWriter:
    """Appends records to an open binary file; each line is flushed, so a crash loses at most the last.

    Raises:
        OSError: whatever the file raises, a full disk for one.
    """

    def __init__(self, file: IO[bytes], header: TraceHeader) -> None:
        self._file = file
        self._write(header)

    def write(self, record: Record) -> None:
        self._write(record)

    def _write(self, line: TraceHeader | Record) -> None:
        self._file.write(_encoder.encode(line) + b"\n")
        self._file.flush()


def read_header(file: IO[bytes]) -> TraceHeader:
    """The first line of a trace.

    Raises:
        TraceError: it is no header, or one of a newer schema.
    """
    header = _decode(read_line(file, 1), 1)
    if not isinstance(header, TraceHeader):
        raise TraceError("line 1: not a trace's header")
    if header.schema_version > SCHEMA_VERSION:
        raise TraceError(
            f"line 1: the trace has schema {header.schema_version}, this program reads up to {SCHEMA_VERSION}"
        )
    return header


def read_records(file: IO[bytes]) -> Iterator[Record]:
    """The records after the header, one at a time.

    Raises:
        TraceError: at the first line that is no record, or cannot follow those before it (`soundness`); they
            have been yielded.
    """
    soundness = Soundness()
    for number in count(2):
        line = read_line(file, number)
        if not line:
            return
        record = _decode(line, number)
        if isinstance(record, TraceHeader):
            raise TraceError(f"line {number}: a second header")
        if flaw := soundness.flaw(record):
            raise TraceError(f"line {number}: {flaw}")
        yield record


def read_line(file: IO[bytes], number: int) -> bytes:
    """The next line of a recording; nothing at its end.

    Raises:
        TraceError: a compressed file is cut off or broken here, or the line is no recording's.
    """
    try:
        line = file.readline(MOST_LINE_BYTES)
    except EOFError:
        raise TraceError(f"line {number}: the trace is cut off here") from None
    except (OSError, zlib.error) as exc:
        raise TraceError(f"line {number}: {exc}") from None
    if len(line) == MOST_LINE_BYTES:
        raise TraceError(f"line {number}: longer than {MOST_LINE_BYTES // 2**20} MiB, so no trace's")
    return line


def _decode(line: bytes, number: int) -> TraceHeader | Record:
    if not line and number == 1:
        raise TraceError("line 1: the file is empty")
    if not line.endswith(b"\n"):
        raise TraceError(f"line {number}: the trace is cut off here")
    return decode_line(line, number)


def decode_line(line: bytes, number: int) -> TraceHeader | Record:
    """One line of a trace.

    Raises:
        TraceError: it is none.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        what = "not a trace's header" if number == 1 else "not a record"
        raise TraceError(f"line {number}: {what} ({exc})") from exc
