"""The app's end of the two pipes: frames in and out without ever waiting, except in `wait`.

No thread of its own: whoever asks reads what is there. A reply then reaches the engine thread without
a hand-over between threads, each of which would first have to get the interpreter lock back from a
thread that is drawing.
"""

from __future__ import annotations

import os
import select
import threading

from engine.worker.wire import Answer, FrameReader, Order, to_answer, to_frame

_CHUNK = 1 << 18
#: Chunks one `receive` takes at most, so that a flood cannot hold its caller.
_MAX_CHUNKS = 64


class Channel:
    """Sends orders, receives answers. Sending is safe from any thread; receiving is for one at a time.

    Attributes:
        ended: the worker's end is closed and everything it wrote has been received.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Takes over both descriptors."""
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self.ended = False
        self._read_fd: int | None = read_fd
        self._write_fd: int | None = write_fd
        self._writing = threading.Lock()
        self._outbox = bytearray()
        self._frames = FrameReader()

    def send(self, order: Order) -> None:
        """Write an order, or keep what the pipe does not take for the next `wait` or `flush`.

        A worker that is gone is not an error here: receiving finds out.

        Raises:
            WireError: the order cannot be a frame.
        """
        frame = to_frame(order)
        with self._writing:
            self._outbox += frame
            self._flush()

    def flush(self) -> None:
        """Write what `send` had to keep, as far as the pipe takes it."""
        with self._writing:
            self._flush()

    def receive(self) -> list[Answer]:
        """The answers that are there. Never waits.

        Raises:
            WireError: the worker does not speak this protocol.
        """
        answers: list[Answer] = []
        for _ in range(_MAX_CHUNKS):
            if self._read_fd is None or self.ended:
                break
            try:
                data = os.read(self._read_fd, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                # Half a frame says less than the exit status of the process: the caller asks that.
                self.ended = True
                break
            answers.extend(map(to_answer, self._frames.feed(data)))
        return answers

    def wait(self, timeout_s: float) -> None:
        """Wait until something can be received, `timeout_s` at most; write what is kept meanwhile."""
        if self._read_fd is None:
            return
        poller = select.poll()
        poller.register(self._read_fd, select.POLLIN)
        with self._writing:
            write_fd = self._write_fd if self._outbox else None
        if write_fd is not None:
            poller.register(write_fd, select.POLLOUT)
        poller.poll(timeout_s * 1000)
        if write_fd is not None:
            self.flush()

    def end_input(self) -> None:
        """Let the worker read end-of-file. Safe from any thread, during `wait` too."""
        with self._writing:
            self._close_writing()

    def close(self) -> None:
        """Give both descriptors back. Not during `wait` or `receive`."""
        self.end_input()
        if self._read_fd is not None:
            os.close(self._read_fd)
            self._read_fd = None

    def _flush(self) -> None:
        while self._outbox and self._write_fd is not None:
            try:
                written = os.write(self._write_fd, self._outbox)
            except BlockingIOError:
                return
            except OSError:  # EPIPE: the worker is gone
                self._close_writing()
                return
            del self._outbox[:written]

    def _close_writing(self) -> None:
        if self._write_fd is not None:
            os.close(self._write_fd)
            self._write_fd = None
        self._outbox.clear()
