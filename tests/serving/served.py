"""A server of screens in a process of its own, and the screens as a browser receives them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyte
from chromium import Browser

ROOT = Path(__file__).parents[2]
TOY = [sys.executable, str(Path(__file__).with_name("toy_screen.py"))]


class Served:
    """`command` behind a server, two sessions at most; or the program `program` that serves by itself."""

    def __init__(self, command: Sequence[str] = TOY, *, program: Sequence[str] = ()) -> None:
        code = (
            "import sys\n"
            "from cbtui.serving.guard import guard_for\n"
            "from cbtui.serving.server import Serving, serve\n"
            f"serving = Serving({list(command)!r}, '127.0.0.1', 0, guard_for('127.0.0.1'), 2)\n"
            "sys.exit(serve(serving, lambda address: print('at', address, flush=True)))\n"
        )
        self.process = subprocess.Popen(
            program or [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found, "it does not serve"
        self.url = found[0]

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.end()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)

    def programs(self) -> list[int]:
        """The processes it has started that are there now."""
        task = Path(f"/proc/{self.process.pid}/task")
        texts = [(thread / "children").read_text() for thread in task.iterdir()]
        return [int(number) for text in texts for number in text.split()]

    def wait_for_programs(self, count: int, timeout_s: float = 20.0) -> list[int]:
        """Its programs, once there are so many."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if len(found := self.programs()) == count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"there are {len(self.programs())} programs, not {count}")


class Seen:
    """A page's terminal, read from the bytes that came to it."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)

    def text(self) -> str:
        """The screen, line by line."""
        browser = self._browser
        browser.js("0")  # take in what has come
        columns, lines = browser.terminal_size
        if (self._screen.columns, self._screen.lines) != (columns, lines):
            self._screen.resize(lines, columns)
        self._stream.feed(b"".join(browser.received))
        browser.received.clear()
        return "\n".join(self._screen.display)

    def wait_for(self, pattern: str, timeout_s: float = 30.0) -> None:
        """Until the screen shows it.

        Raises:
            AssertionError: it never did; the message is the screen.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if re.search(pattern, text := self.text()):
                return
            time.sleep(0.1)
        raise AssertionError(f"not seen: {pattern}\n{text}\n{self._browser.complaints}")
