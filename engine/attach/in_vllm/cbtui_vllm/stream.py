"""Carries lines out of the server without ever making it wait.

`Stream.put` only appends to a bounded queue. One daemon thread encodes and writes: to a file, or to
whoever has connected to the socket, without blocking. What does not fit (a reader that stalls, a disk
that hangs) is dropped and counted, and the stream says how many; after that, and for a reader that comes
late, it asks for a keyframe, from which everything can be followed again. A write that fails ends the
recording, never the server.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from .encoding import Line, encoded, let_others_run
from .places import Place
from .readers import SocketSink
from .sinks import FileSink, Sink

#: Lines that may wait for the thread: about a minute of steps.
QUEUE_LIMIT = 4096
#: About how many bytes of memory they may hold.
QUEUE_BYTES = 64 << 20

_log = logging.getLogger("vllm.cbtui")

#: What the thread makes of a line before it writes it.
Finish = Callable[[Line], Line]
#: What it makes of a keyframe: line by line, the one of kind `key` last.
FinishKey = Callable[[Line], Iterable[Line]]


class Stream:
    """The queue and its thread.

    Args:
        place: where to.
        header: the first line of it, for every reader.

    Raises:
        OSError: the file or the socket cannot be made.
    """

    def __init__(self, place: Place, header: Line) -> None:
        #: What the thread has to do, and about how many bytes that holds.
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], int] | None] = queue.SimpleQueue()
        # Each is written by one thread and read by the other.
        self._bytes_put = self._bytes_done = 0
        self._keys_put = self._keys_done = 0
        self._lost = 0
        #: A keyframe is wanted; `put_key` answers. Read at each step, so a plain attribute.
        self.wants_key = False
        self.is_over = False
        self.num_lost = 0
        self.cpu_s = 0.0
        first = encoded(header)
        self._sink: Sink = (
            SocketSink(place.path, first, self._welcome) if place.is_socket else FileSink(place.path, first)
        )
        self._thread = threading.Thread(target=self._run, name="cbtui-stream", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._sink.close()
            raise

    @property
    def is_heard(self) -> bool:
        """Whether anybody takes what is put."""
        return self._sink.is_heard

    @property
    def takes_key(self) -> bool:
        """Whether a keyframe would be taken now: not while the thread has much to do, or one already."""
        return self._keys_put == self._keys_done and self._has_room(2)

    def put(self, line: Line, finish: Finish | None = None, size: int = 0) -> None:
        """Take a line; never waits.

        Args:
            finish: what of its making may be left to the thread.
            size: about how many bytes of memory it holds.
        """
        if self._lost or not self._has_room(1):
            # Half a story helps nobody: nothing goes out until a keyframe starts it anew.
            self._lost += 1
            self.num_lost += 1
            self.wants_key = True
        else:
            self._enqueue(lambda: self._write(finish(line) if finish else line), size)

    def put_key(self, line: Line, finish: FinishKey) -> None:
        """Take a keyframe, if `takes_key`. Its size is not counted: only one waits at a time."""
        if not self.takes_key:
            return
        if self._lost:
            lost: Line = {"k": "lost", "n": self._lost}
            self._enqueue(lambda: self._write(lost), 0)
            self._lost = 0
        self._keys_put += 1
        self.wants_key = False  # whoever connects from here on asks anew
        self._enqueue(lambda: self._write_key(finish(line)), 0)

    def close(self, timeout_s: float = 1.0, last: Line | None = None) -> None:
        """Write what is there and end; waits a moment at most.

        Args:
            last: a line to end with, whether or not the queue is full.
        """
        if last is not None:
            self._enqueue(lambda: self._write(last), 0)
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _has_room(self, share: int) -> bool:
        waiting = self._bytes_put - self._bytes_done
        return self._queue.qsize() < QUEUE_LIMIT // share and waiting <= QUEUE_BYTES // share

    def _enqueue(self, work: Callable[[], object], size: int) -> None:
        self._bytes_put += size
        self._queue.put((work, size))

    def _welcome(self) -> None:
        """In the sink's thread: a reader has come."""
        self.wants_key = True
        self._queue.put((self._sink_flush, 0))

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
            item = self._queue.get(timeout=sink.due_s)
        except queue.Empty:
            sink.flush()
            return True
        if item is None:
            return False
        work, size = item
        work()
        self._bytes_done += size
        if sink.wants_key and self._keys_put == self._keys_done:  # else one is on its way
            self.wants_key = True
        self.cpu_s = time.thread_time()
        return True

    def _write(self, line: Line) -> None:
        self._sink.write(line["k"], encoded(line))

    def _write_key(self, lines: Iterable[Line]) -> None:
        try:
            self._sink.begin_key()
            for line in lines:
                self._write(line)
                let_others_run()
        finally:
            self._keys_done += 1

    def _sink_flush(self) -> None:
        self._sink.flush()
