"""The program of a session, seen from inside: whether it is one, and its end when its server is killed.

A server that ends in good order ends its programs. One that is killed cannot: they would run on with their
models, and nobody could reach them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

#: What textual-serve puts into the environment of the programs it starts.
_WEB_DRIVER = "textual.drivers.web_driver:WebDriver"
_LOOK_EVERY_S = 0.5


def is_served() -> bool:
    """Whether this program's terminal is a page in a browser."""
    return os.environ.get("TEXTUAL_DRIVER") == _WEB_DRIVER


def end_with_server(close: Callable[[], None]) -> None:
    """From now on, should the server be gone: `close`, and end. In a thread: the screen may hang on a pipe
    that nobody reads any more."""
    server = os.getppid()

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(_LOOK_EVERY_S)
        close()
        os._exit(128 + signal.SIGHUP)

    threading.Thread(target=watch, name="leash", daemon=True).start()
