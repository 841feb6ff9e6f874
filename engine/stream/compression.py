"""Compressed recordings, gzip or Zstandard: written by the ending of the name, read by content.

Zstandard needs the package `zstandard`, which is used where it is installed.
"""

from __future__ import annotations

import gzip
import importlib
import io
from pathlib import Path
from typing import IO, Any, cast

from engine.stream.trace import TraceError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: The usual level costs thrice the time for a tenth less.
_GZIP_LEVEL = 4
_NO_ZSTD = "needs the package zstandard (pip install zstandard); without it use .gz"


def is_compressed(data: bytes) -> bool:
    """Whether a file's content is gzip's or Zstandard's."""
    return data.startswith((_GZIP, _ZSTD))


def created(path: Path) -> IO[bytes]:
    """A new file, compressed if its name says so; one that is there is replaced.

    Raises:
        OSError: it cannot be written.
        TraceError: what it is to be compressed with is not installed.
    """
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "wb", _GZIP_LEVEL))
    if path.suffix == ".zst":
        compressor = _zstandard(path).ZstdCompressor()
        return cast(IO[bytes], compressor.stream_writer(path.open("wb", buffering=0)))
    return path.open("wb")


def uncompressed(raw: io.BufferedReader) -> IO[bytes]:
    """A file's content. Where it is cut off or broken, reading raises EOFError, OSError or zlib.error.

    Raises:
        TraceError: what it is compressed with is not installed.
    """
    head = raw.peek(4)[:4]
    if head.startswith(_GZIP):
        return cast(IO[bytes], gzip.open(raw, "rb"))
    if head.startswith(_ZSTD):
        return io.BufferedReader(_Zstandard(raw, _zstandard(Path(getattr(raw, "name", "it")))))
    return raw


class _Zstandard(io.RawIOBase):
    """Unpacks one frame after another, as `zstd` does; its errors become an OSError, as gzip's are."""

    def __init__(self, raw: io.BufferedReader, zstandard: Any) -> None:
        self._reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        self._error = zstandard.ZstdError

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._reader.readinto(buffer))
        except self._error as exc:
            raise OSError(str(exc)) from None


def _zstandard(path: Path) -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise TraceError(f"{path.name} {_NO_ZSTD}") from None
