"""Recorded streams on disk, compressed or not: this program's traces, or a recording vLLM's file.

The same two readers as `engine.stream.trace_files`, which knows traces alone.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.attach.vllm_lines import is_header
from engine.attach.vllm_stream import VllmLines, read_stream
from engine.stream import trace_files
from engine.stream.compression import uncompressed
from engine.stream.records import SCHEMA_VERSION, Record, TraceHeader
from engine.stream.trace import TraceError, read_line
from engine.stream.trace_files import Trace


@contextmanager
def opened(path: Path) -> Iterator[tuple[TraceHeader, Iterator[Record]]]:
    """A recording's header, and its records one at a time.

    Raises:
        TraceError: it cannot be opened, or is none. The message names the file.
    """
    if not _is_vllm(path):
        with trace_files.opened(path) as (header, records):
            yield header, records
        return
    with path.open("rb") as raw:
        file, reader = uncompressed(raw), VllmLines(address="")
        try:
            known = reader.begin(read_line(file, 1))
        except TraceError as exc:
            raise TraceError(f"{path}, {exc}") from None
        yield (
            TraceHeader(
                SCHEMA_VERSION,
                known.info.name,
                known.info.device,
                known.info.dtype,
                block_size=known.config.block_size,
                max_model_len=known.info.max_model_len,
                provenance=known.provenance,
            ),
            read_stream(file, reader),
        )


def read_recording(path: Path) -> Trace:
    """A recording in memory.

    Raises:
        TraceError: not even the header can be read.
    """
    with opened(path) as (header, found):
        return trace_files.gathered(header, found)


def is_recording(path: Path) -> bool:
    """Whether a file is one."""
    return _is_vllm(path) or trace_files.is_trace(path)


def begins_as_recording(data: bytes) -> bool:
    """Whether a file's content is one's, compressed ones included."""
    return _begins_as_vllm(io.BufferedReader(io.BytesIO(data))) or trace_files.begins_as_trace(data)


def _is_vllm(path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            return _begins_as_vllm(raw)
    except OSError:
        return False


def _begins_as_vllm(raw: io.BufferedReader) -> bool:
    try:
        return is_header(uncompressed(raw).readline(1 << 16))
    except (TraceError, EOFError, OSError, zlib.error):
        return False
