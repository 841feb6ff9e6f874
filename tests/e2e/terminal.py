"""A program in a real pseudo-terminal: keys go in as bytes, the screen is read as a person would see it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

import pyte

KEYS = {
    "enter": "\r", "escape": "\x1b", "tab": "\t", "up": "\x1b[A", "down": "\x1b[B", "f1": "\x1bOP",
    "f5": "\x1b[15~", "f6": "\x1b[17~", "f8": "\x1b[19~", "ctrl+q": "\x11", "ctrl+c": "\x03",
}  # fmt: skip


class Terminal:
    """Runs a command with a pseudo-terminal as its controlling terminal.

    Args:
        command: program and arguments.
        columns, lines: size of the screen.
        env: set beside the current environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 160,
        lines: int = 50,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.settings_before = termios.tcgetattr(self._slave)
        self.output = b""
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})},
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def settings(self) -> list[object]:
        """The terminal's settings now (termios)."""
        return termios.tcgetattr(self._slave)

    @property
    def text(self) -> str:
        """The screen, line by line."""
        return "\n".join(self._screen.display)

    @property
    def title(self) -> str:
        """What the program has set the terminal's title to."""
        return self._screen.title

    def read(self) -> None:
        """Take in what was written meanwhile."""
        self._read(0.1)

    def hang_up(self) -> None:
        """Close the terminal, as a window is closed."""
        os.close(self._master)
        os.close(self._slave)

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does that marks what is pasted."""
        os.write(self._master, b"\x1b[200~" + text.encode() + b"\x1b[201~")
        self._read(0.2)

    def press(self, *keys: str) -> None:
        """Send keys by name, or text as it is."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())
            # Nobody presses two keys within one read; after Esc a terminal program waits for the rest of a
            # sequence, and what comes in that time would be taken for one.
            time.sleep(0.3 if key == "escape" else 0.05)
            self._read(0.0)

    def wait_for(self, pattern: str, timeout_s: float = 60.0) -> re.Match[str]:
        """Read until the screen matches.

        Raises:
            AssertionError: it never did; the message is the screen.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._read(0.1)
            found = re.search(pattern, self.text)
            if found:
                return found
            if self.process.poll() is not None:
                break
        raise AssertionError(f"not seen within {timeout_s} s: {pattern}\n{self.text}")

    def wait_until_gone(self, text: str, timeout_s: float = 60.0) -> None:
        """Read until the screen no longer shows `text`.

        Raises:
            AssertionError: it still does; the message is the screen.
        """
        deadline = time.monotonic() + timeout_s
        while text in self.text:
            assert time.monotonic() < deadline, f"still there after {timeout_s} s: {text}\n{self.text}"
            self._read(0.1)

    def wait_for_end(self, timeout_s: float = 10.0) -> int:
        """Read until the program has ended; its exit code."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            self._read(0.1)
            assert time.monotonic() < deadline, f"still running\n{self.text}"
        self._read(0.1)
        return self.process.returncode

    def _read(self, timeout_s: float) -> None:
        while select.select([self._master], [], [], timeout_s)[0]:
            data = os.read(self._master, 65536)
            self.output += data
            self._stream.feed(data)
            timeout_s = 0.0
