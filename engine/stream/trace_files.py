"""Trace files on disk, compressed or not.

What a crash leaves behind can be read up to the last whole record: every line is flushed through the
compression.
"""

from __future__ import annotations

import io
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from engine.config import EngineConfig
from engine.runner import ModelFacts, ModelInfo
from engine.stream.compression import created, is_compressed, uncompressed
from engine.stream.records import SCHEMA_VERSION, Provenance, Record, TraceHeader
from engine.stream.trace import TraceError, TraceWriter, read_header, read_records


def header_of(info: ModelInfo, config: EngineConfig, provenance: Provenance | None = None) -> TraceHeader:
    """What a trace says of the model and the engine it was recorded on.

    Args:
        provenance: of records that an observed server made.
    """
    return TraceHeader(
        SCHEMA_VERSION,
        info.name,
        info.device,
        info.dtype,
        block_size=config.block_size,
        max_model_len=min(config.max_model_len, info.max_model_len),
        num_threads=info.num_threads,
        machine=f"{platform.system()} {platform.machine()}",
        kv_bytes_per_token=info.kv_bytes_per_token,
        provenance=provenance,
        layer_windows=info.facts.layer_windows,
    )


def info_of(header: TraceHeader) -> ModelInfo:
    """What is known of a recorded model; it cannot be run."""
    return ModelInfo(
        name=header.model,
        source=header.model,
        device=header.device,
        dtype=header.dtype,
        max_model_len=header.max_model_len,
        num_threads=header.num_threads,
        kv_bytes_per_token=header.kv_bytes_per_token,
        facts=ModelFacts(layer_windows=header.layer_windows),
    )


class TraceRecorder:
    """Writes a trace as it happens. A fault while writing ends the recording, not what is recorded.

    Args:
        path: `.gz` and `.zst` are compressed; a file that is there is replaced.

    Raises:
        TraceError: the file cannot be written, said before anything has run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Why recording stopped early; empty: it did not.
        self.error = ""
        self._writer: TraceWriter | None = None
        try:
            self._file: IO[bytes] | None = created(path)
        except OSError as exc:
            raise TraceError(f"cannot write {path}: {exc.strerror or exc}") from None

    def begin(self, header: TraceHeader) -> None:
        """Write the header; records may follow."""
        if self._file is not None and self._writer is None:
            try:
                self._writer = TraceWriter(self._file, header)
            except OSError as exc:
                self._stop(exc)

    @property
    def has_begun(self) -> bool:
        """Whether the header is written."""
        return self._writer is not None

    def write(self, record: Record) -> None:
        """Append a record, and have it on disk."""
        if self._writer is not None and self._file is not None:
            try:
                self._writer.write(record)
            except OSError as exc:
                self._stop(exc)

    def close(self) -> None:
        """The end; twice too."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as exc:
                self.error = self.error or _reason(self.path, exc)

    def _stop(self, exc: OSError) -> None:
        self.error = _reason(self.path, exc)
        self.close()


class Trace(msgspec.Struct, frozen=True):
    """A whole trace as far as it could be read; `error` says where and why not further."""

    header: TraceHeader
    records: tuple[Record, ...]
    error: str = ""


@contextmanager
def opened(path: Path) -> Iterator[tuple[TraceHeader, Iterator[Record]]]:
    """A trace's header, and its records one at a time (`read_records` says how they end).

    Raises:
        TraceError: it cannot be opened, or is no trace. The message names the file.
    """
    try:
        raw = path.open("rb")
    except OSError as exc:
        raise TraceError(f"cannot read {path}: {exc.strerror or exc}") from None
    with raw:
        try:
            file = uncompressed(raw)
            header = read_header(file)
        except TraceError as exc:
            raise TraceError(f"{path}, {exc}") from None
        except OSError as exc:
            raise TraceError(f"cannot read {path}: {exc.strerror or exc}") from None
        yield header, read_records(file)


def read_trace(path: Path) -> Trace:
    """A trace in memory.

    Raises:
        TraceError: not even the header can be read.
    """
    with opened(path) as (header, found):
        return gathered(header, found)


def gathered(header: TraceHeader, found: Iterator[Record]) -> Trace:
    """A header and the records behind it, as far as they can be read."""
    records: list[Record] = []
    try:
        records.extend(found)
    except TraceError as exc:
        return Trace(header, tuple(records), str(exc))
    return Trace(header, tuple(records))


def is_trace(path: Path) -> bool:
    """Whether a file is one of traces."""
    try:
        with opened(path):
            return True
    except TraceError:
        return False


def begins_as_trace(data: bytes) -> bool:
    """Whether a file's content is a trace's, compressed ones included."""
    if is_compressed(data):
        try:
            read_header(uncompressed(io.BufferedReader(io.BytesIO(data))))
        except (TraceError, OSError):
            return False
        return True
    return data.startswith(b'{"type":"header"')


def _reason(path: Path, exc: OSError) -> str:
    return f"recording {path} stopped: {exc.strerror or exc}"
