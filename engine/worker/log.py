"""What the model process prints: in a log file, and its last lines as a cause."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TextIO

from engine.logs import open_log

_TAIL_BYTES = 8192
_TAIL_LINES = 2
_LINE_LIMIT = 200
#: Escape sequences and control characters: what is quoted ends up on a screen.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: What a file that somebody looks at in a terminal must not hold: a cause may quote a prompt.
_ORDERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class LogStream(io.TextIOWrapper):
    """What Python prints to a log; characters a terminal acts on stand there in words (`\\x1b`)."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._stream = stream  # closes what it writes to when nobody holds it

    def write(self, text: str) -> int:
        super().write(_ORDERS.sub(lambda found: ascii(found.group())[1:-1], text))
        return len(text)


class WorkerLog:
    """A log file and where the lines of the process running now begin in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def open(self, title: str) -> int:
        """A descriptor that appends to the file; what follows `title` is what `last_lines` looks at.

        Raises:
            OSError: the file cannot be written.
        """
        fd = open_log(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"--- {title}\n".encode())
        self._start = os.fstat(fd).st_size
        return fd

    def last_lines(self) -> str:
        """The last two lines the process printed, on one line; empty if there are none."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = self._start if self._start <= size else 0  # the worker empties a file grown too big
                file.seek(max(start, size - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        # The dump of every thread's stack that follows a fatal signal is for the file, not for a sentence.
        head = text.partition("Fatal Python error")[0]
        lines = [line.strip() for line in _CONTROL.sub(" ", head).splitlines() if line.strip()]
        return " / ".join(line[:_LINE_LIMIT] for line in lines[-_TAIL_LINES:])
