"""How often the screen looks for news: steadily, but half as often while drawing takes much of the time.

The model's threads want every core: at full speed a screen that draws less slows the engine less.

Measured in CPU seconds of the drawing thread, so layout, painting and encoding count, waiting does not.
Pure: the clock is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FRAMES_PER_S = 20
#: Share of a frame's time that drawing may take before the rate is halved.
MOST_SHARE = 0.15


class Pace:
    """Asked at every tick of `FRAMES_PER_S`; says whether this one is used.

    Args:
        cpu: CPU seconds of the calling thread.
    """

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self._cpu = cpu
        self._last = cpu()
        self._skip_next = False
        #: CPU seconds between the last two looks: one frame and whatever else the thread did.
        self.frame_s = 0.0

    def is_due(self) -> bool:
        """Whether to look now. A tick after a heavy frame is left out."""
        if self._skip_next:
            self._skip_next = False
            return False
        now = self._cpu()
        self.frame_s, self._last = now - self._last, now
        self._skip_next = self.frame_s > MOST_SHARE / FRAMES_PER_S
        return True
