"""The engine's thread: runs a driver beside the screen, and holds no exit up.

A thread cannot be ended from outside, and in this one a policy runs that may be anybody's. So it is a
daemon, which the program leaves behind where that policy does not come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cbtui.following.link import EngineDriver
from engine.scheduling.policies import unanswered

#: Seconds between two looks at whether it has ended.
LOOK_S = 0.1


class EngineThread:
    """Runs one driver once.

    Args:
        driver: what runs.
        on_fault: told, in that thread, of an exception it ended with.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        driver: EngineDriver,
        on_fault: Callable[[Exception], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._on_fault = on_fault
        self._now_s = now_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def stuck_in(self) -> str:
        """Whose answer it waits for in vain, a sentence; empty: nobody's."""
        return unanswered(self._thread.ident, self._now_s()) if self._thread.ident else ""

    def end(self) -> None:
        """End the driver, and wait until the thread has ended or is stuck. From any thread, twice too."""
        self._ends.set()
        self._driver.close()
        while self._thread.is_alive() and not self.stuck_in:
            self._thread.join(LOOK_S)

    def _run(self) -> None:
        try:
            self._driver.run(self._ends.is_set)
        except Exception as exc:
            self._on_fault(exc)
