"""Textual's terminal driver, made to outlive its terminal and to stop and go on safely.

Three things it adds. A terminal that is gone (a closed window, a broken connection) ends the app instead of
killing the thread that writes, after which the app would wait for it for ever. Stopping and going on are
done by the app's loop, not in a signal handler that may have interrupted a write. And going on without
having stopped here (`kill -STOP`, or what the kernel sends after a hang-up) begins nothing twice.
"""

from __future__ import annotations

import signal
import termios
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

#: Exit status of who lost the terminal, as shells count it.
HUNG_UP = 128 + signal.SIGHUP


class _Output:
    """The terminal's file; once it cannot be written any more, it says so once and takes everything.

    Args:
        file: what Textual writes to.
        on_gone: called in the writing thread.
    """

    def __init__(self, file: TextIO, on_gone: Callable[[], None]) -> None:
        self._file = file
        self._on_gone = on_gone
        self._is_gone = False

    def write(self, text: str) -> int:
        """Write, or drop what nobody will see."""
        self._try(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        """Bring it out."""
        self._try(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def _try(self, do: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            do()
        except (OSError, ValueError):
            self._is_gone = True
            self._on_gone()


class TerminalDriver(LinuxDriver):
    """See the module. Takes the place of Textual's own on a terminal."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert self._file is not None
        self._file = cast(Any, _Output(self._file, self._terminal_is_gone))

    def stop(self) -> None:
        """Give the terminal back and stop this process until somebody lets it go on."""
        self._sigtstp_application()

    def go_on(self) -> None:
        """After a stop, by whomever: take the terminal again."""
        if not self._auto_restart:
            return
        if not self._must_signal_resume:
            try:
                termios.tcgetattr(self.fileno)
            except termios.error:
                return  # a hang-up: there is no terminal to take
            self.suspend_application_mode()
            self._must_signal_resume = True
        self._sigcont_application()

    def _terminal_is_gone(self) -> None:
        self._loop.call_soon_threadsafe(partial(self._app.exit, return_code=HUNG_UP))
