"""Carries lines out of the server without ever making it wait.

`Stream.put` only appends to a bounded queue. One daemon thread encodes and writes: to a file, or to
whoever has connected to the socket, without blocking. What does not fit (a reader that stalls, a disk
that hangs) is dropped and counted, and the stream says how many; after that, and for a reader that comes
late, it asks for a keyframe, from which everything can be followed again. A write that fails ends the
recording, never the server.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from .places import Place, private_folder

Line = dict[str, Any]

#: Lines that may wait for the thread: about a minute of steps.
QUEUE_LIMIT = 4096
#: Bytes that may wait for one reader.
READER_LIMIT = 8 << 20
#: How long the thread sleeps while a reader has bytes waiting, seconds.
_FLUSH_EVERY_S = 0.02

_log = logging.getLogger("vllm.cbtui")


class Sink(Protocol):
    """Takes encoded lines, in the stream's own thread.

    `wants_key` is whether a keyframe is needed before anything else can be understood; `is_heard`, asked in
    any thread, whether anybody takes the lines.
    """

    @property
    def is_heard(self) -> bool: ...

    @property
    def wants_key(self) -> bool: ...

    @property
    def is_pending(self) -> bool: ...

    def write(self, kind: str, line: bytes) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Stream:
    """The queue and its thread.

    Args:
        place: where to.
        header: the first line of it, for every reader.

    Raises:
        OSError: the file or the socket cannot be made.
    """

    def __init__(self, place: Place, header: Line) -> None:
        self._queue: queue.SimpleQueue[tuple[Line, Callable[[Line], Line] | None] | None] = (
            queue.SimpleQueue()
        )
        self._lost = 0
        #: A keyframe is wanted; `put_key` answers. Read at each step, so a plain attribute.
        self.wants_key = False
        self.is_over = False
        self.num_lost = 0
        self.cpu_s = 0.0
        first = _encoded(header)
        self._sink: Sink = (
            SocketSink(place.path, first, self._want_key) if place.is_socket else FileSink(place.path, first)
        )
        self._thread = threading.Thread(target=self._run, name="cbtui-stream", daemon=True)
        self._thread.start()

    @property
    def is_heard(self) -> bool:
        """Whether anybody takes what is put."""
        return self._sink.is_heard

    def put(self, line: Line, finish: Callable[[Line], Line] | None = None) -> None:
        """Take a line; never waits.

        Args:
            finish: what of its making may be left to the thread.
        """
        if self._lost or self._queue.qsize() >= QUEUE_LIMIT:
            # Half a story helps nobody: nothing goes out until a keyframe starts it anew.
            self._lost += 1
            self.num_lost += 1
            self.wants_key = True
        else:
            self._queue.put((line, finish))

    def put_key(self, line: Line, finish: Callable[[Line], Line]) -> None:
        """Take a keyframe, unless the thread still has too much to do."""
        if self._queue.qsize() >= QUEUE_LIMIT // 2:
            return
        if self._lost:
            self._queue.put(({"k": "lost", "n": self._lost}, None))
            self._lost = 0
        self.wants_key = False  # first: whoever connects from here on asks anew
        self._queue.put((line, finish))

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is there and end; waits a moment at most."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _want_key(self) -> None:
        self.wants_key = True

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as exc:
            _log.warning("cbtui: the recording stopped: %s: %s", type(exc).__name__, exc)
        finally:
            self.is_over = True
            try:
                self._sink.close()
            except OSError:
                pass

    def _turn(self) -> bool:
        sink = self._sink
        try:
            item = self._queue.get(timeout=_FLUSH_EVERY_S if sink.is_pending else None)
        except queue.Empty:
            sink.flush()
            return True
        if item is None:
            return False
        line, finish = item
        sink.write(line["k"], _encoded(finish(line) if finish else line))
        if sink.wants_key:
            self.wants_key = True
        self.cpu_s = time.thread_time()
        return True


class FileSink:
    """A file; one that is there is replaced.

    Raises:
        OSError: it cannot be written.
    """

    is_heard = True
    wants_key = False
    is_pending = False

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

    def write(self, kind: str, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


class _Reader:
    """A connected reader, and what waits for it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.waiting = bytearray()
        #: It had a keyframe, and every line since.
        self.is_in_step = False
        self.missed = 0
        self._has_begun = False
        self.is_gone = False

    def take(self, kind: str, line: bytes) -> None:
        if self.is_in_step and len(self.waiting) <= READER_LIMIT:
            if kind != "key":
                self.waiting += line
        elif kind == "key" and not self.waiting:
            if self.missed:
                self.waiting += _encoded({"k": "lost", "n": self.missed})
            self.waiting += line
            self.is_in_step, self._has_begun, self.missed = True, True, 0
        else:
            self.is_in_step = False
            self.missed += self._has_begun  # what came before its first keyframe is no loss
        self.send()

    def send(self) -> None:
        try:
            while self.waiting:
                sent = self.connection.send(self.waiting)
                del self.waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True


class SocketSink:
    """A listening Unix socket, open to its owner alone; any number of readers.

    Args:
        path: its file. One left over by a server that is gone is replaced.
        header: what every reader gets first.
        on_reader: called when one has come, in a thread of its own.

    Raises:
        OSError: it cannot be made, or another server listens there.
    """

    def __init__(self, path: Path, header: bytes, on_reader: Callable[[], None]) -> None:
        private_folder(path.parent)
        _remove_dead(path)
        self._path = path
        self._header = header
        self._on_reader = on_reader
        self._readers: list[_Reader] = []
        self._new: deque[socket.socket] = deque()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))  # nobody else can enter its folder
        os.chmod(path, 0o600)
        self._listener.listen(64)
        threading.Thread(target=self._accept, name="cbtui-accept", daemon=True).start()

    @property
    def is_heard(self) -> bool:
        return bool(self._new) or bool(self._readers)  # in the order in which they go over

    @property
    def wants_key(self) -> bool:
        self._welcome()
        return any(not (one.is_in_step or one.waiting) for one in self._readers)

    @property
    def is_pending(self) -> bool:
        return any(one.waiting for one in self._readers)

    def write(self, kind: str, line: bytes) -> None:
        self._welcome()
        for reader in self._readers:
            reader.take(kind, line)
        self._bury()

    def flush(self) -> None:
        self._welcome()
        for reader in self._readers:
            reader.send()
        self._bury()

    def close(self) -> None:
        self.flush()
        self._listener.close()
        for reader in self._readers:
            reader.connection.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                connection.setblocking(False)
                # The header goes out at once: an idle server writes nothing, and its reader shall know it.
                connection.sendall(self._header)
            except OSError:
                connection.close()  # gone already
            else:
                self._new.append(connection)
                self._on_reader()

    def _welcome(self) -> None:
        while self._new:
            self._readers.append(_Reader(self._new[0]))
            self._new.popleft()  # only now: it is in one of the two at any time

    def _bury(self) -> None:
        for reader in [one for one in self._readers if one.is_gone]:
            reader.connection.close()
            self._readers.remove(reader)


def _remove_dead(path: Path) -> None:
    """Remove a socket nobody listens on."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        try:
            knock.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise OSError(f"another server listens on {path}")


def _encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
