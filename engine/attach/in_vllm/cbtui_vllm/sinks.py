"""What a stream writes to: `FileSink` here, `readers.SocketSink` for a socket."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol


class Sink(Protocol):
    """Takes encoded lines, in the stream's own thread.

    `wants_key` is whether a keyframe is needed before anything else can be understood; `due_s` how soon it
    wants to be flushed if no line comes, None: never; `is_heard`, asked in any thread, whether anybody takes
    the lines.
    """

    @property
    def is_heard(self) -> bool: ...

    @property
    def wants_key(self) -> bool: ...

    @property
    def due_s(self) -> float | None: ...

    def begin_key(self) -> None:
        """A keyframe follows; its last line is of kind `key`."""

    def write(self, kind: str, line: bytes) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class FileSink:
    """A file; one that is there is replaced.

    Raises:
        OSError: it cannot be written.
    """

    is_heard = True
    wants_key = False
    due_s = None

    def __init__(self, path: Path, header: bytes) -> None:
        # O_NONBLOCK: opening a pipe nobody reads would hold the server's start.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        number = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError(f"{path} is no regular file")
        os.fchmod(number, 0o600)
        os.ftruncate(number, 0)
        self._file = os.fdopen(number, "wb", buffering=0)
        self.write("header", header)

    def begin_key(self) -> None:
        pass

    def write(self, kind: str, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()
