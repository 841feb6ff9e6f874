"""The socket that readers connect to. They may come, stall and leave as they like; none is waited for."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from .encoding import encoded
from .places import private_folder

#: Bytes that may wait for one reader, a keyframe's not counted.
READER_LIMIT = 8 << 20
#: Readers at a time.
MOST_READERS = 32
#: How soon bytes that wait for a reader are tried again, seconds.
_FLUSH_EVERY_S = 0.02
#: How soon it is noticed that a reader has left an idle server, seconds.
_LOOK_EVERY_S = 1.0
#: How long nobody is let in when that has failed (the process may have no file left), seconds.
_REST_S = 0.2


class _Reader:
    """A connected reader, and what waits for it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.waiting = bytearray()
        #: How many of these bytes belong to a keyframe, or stand before one.
        self._num_of_key = 0
        #: It had a keyframe, and every line since.
        self.is_in_step = False
        self._takes_key = False
        self.missed = 0
        self._has_begun = False
        self.is_gone = False
        self._hang_up = select.poll()
        self._hang_up.register(connection, 0)

    @property
    def wants_key(self) -> bool:
        return not (self.is_in_step or self.waiting)

    def begin_key(self) -> None:
        """A keyframe follows: it is taken by whoever needs it and has had all that was sent before."""
        if not self.wants_key:
            return
        self._takes_key = True
        if self.missed:
            self._take_of_key(encoded({"k": "lost", "n": self.missed}))

    def take(self, kind: str, line: bytes) -> None:
        if kind in ("one", "key"):
            if self._takes_key:
                self._take_of_key(line)
                if kind == "key":
                    self._takes_key, self.missed = False, 0
                    self.is_in_step = self._has_begun = True
        elif self.is_in_step and len(self.waiting) - self._num_of_key <= READER_LIMIT:
            self.waiting += line
        elif kind == "over":
            self.waiting += line  # it is understood without a keyframe
        else:
            self.is_in_step = False
            self.missed += self._has_begun  # what came before its first keyframe is no loss
        self.send()

    def _take_of_key(self, line: bytes) -> None:
        self.waiting += line
        self._num_of_key = len(self.waiting)

    def send(self) -> None:
        try:
            while self.waiting:
                sent = self.connection.send(self.waiting)
                del self.waiting[:sent]
                self._num_of_key = max(0, self._num_of_key - sent)
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True

    def look(self) -> None:
        """Notice that it has left, though nothing is sent."""
        if self._hang_up.poll(0):
            self.is_gone = True


class SocketSink:
    """A listening Unix socket, open to its owner alone; `MOST_READERS` at a time.

    Args:
        path: its file. One left over by a server that is gone is replaced.
        header: what every reader gets first.
        on_reader: called when one has come, in a thread of its own.

    Raises:
        OSError: it cannot be made, or another server listens there.
    """

    def __init__(self, path: Path, header: bytes, on_reader: Callable[[], None]) -> None:
        private_folder(path.parent)
        remove_dead(path)
        self._path = path
        self._header = header
        self._on_reader = on_reader
        self._readers: list[_Reader] = []
        self._new: deque[socket.socket] = deque()
        #: As many may be on the way from one thread to the other; who comes then waits outside.
        self._room = threading.Semaphore(MOST_READERS)
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(path))  # nobody else can enter its folder
        except OSError:
            self._listener.close()
            raise
        try:
            os.chmod(path, 0o600)
            self._listener.listen(64)
            threading.Thread(target=self._accept, name="cbtui-accept", daemon=True).start()
        except BaseException:
            self.close()
            raise

    @property
    def is_heard(self) -> bool:
        return bool(self._new) or bool(self._readers)  # in the order in which they go over

    @property
    def wants_key(self) -> bool:
        self._welcome()
        return any(one.wants_key for one in self._readers)

    @property
    def due_s(self) -> float | None:
        if any(one.waiting for one in self._readers):
            return _FLUSH_EVERY_S
        return _LOOK_EVERY_S if self._readers else None

    def begin_key(self) -> None:
        self._welcome()
        for reader in self._readers:
            reader.begin_key()

    def write(self, kind: str, line: bytes) -> None:
        self._welcome()
        for reader in self._readers:
            reader.take(kind, line)
        self._bury()

    def flush(self) -> None:
        self._welcome()
        for reader in self._readers:
            reader.look()
            reader.send()
        self._bury()

    def close(self) -> None:
        self.flush()
        self._closed.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody who accepts
        except OSError:
            pass
        self._listener.close()
        for reader in self._readers:
            reader.connection.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closed.is_set():
            self._room.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed; or no file is left, or whoever knocked has gone
                self._room.release()
                self._closed.wait(_REST_S)
                continue
            try:
                connection.setblocking(False)
                # The header goes out at once: an idle server writes nothing, and its reader shall know it.
                connection.sendall(self._header)
            except OSError:
                connection.close()  # gone already
                self._room.release()
            else:
                self._new.append(connection)
                self._on_reader()

    def _welcome(self) -> None:
        while self._new:
            if len(self._readers) >= MOST_READERS:
                for one in self._readers:
                    one.look()
                self._bury()
            reader = _Reader(self._new[0])
            if len(self._readers) < MOST_READERS:
                self._readers.append(reader)
            else:
                reader.take("over", encoded(_no_room()))
                reader.connection.close()
            self._new.popleft()  # only now: it is in one of the two at any time
            self._room.release()

    def _bury(self) -> None:
        for reader in [one for one in self._readers if one.is_gone]:
            reader.connection.close()
            self._readers.remove(reader)


def _no_room() -> dict[str, str]:
    what = f"{MOST_READERS} readers are there already; attach again when one has left"
    return {"k": "over", "what": what}


def remove_dead(path: Path) -> None:
    """Remove a socket nobody listens on. Does not wait.

    Raises:
        OSError: somebody does.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.setblocking(False)
        try:
            knock.connect(str(path))
        except BlockingIOError:
            pass  # many knock already, and nobody has let them in yet
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise OSError(f"another server listens on {path}")
