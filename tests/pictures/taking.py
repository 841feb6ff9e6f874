"""The screen on the real model, without a terminal: keys go in, pictures come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions

#: Seconds a model may take to load, and a run to end.
PATIENCE_S = 900.0


class Screen:
    """A running screen."""

    def __init__(self, app: CbtuiApp, pilot: Pilot[None]) -> None:
        self._app = app
        self._pilot = pilot

    @property
    def step(self) -> int:
        """The last finished step that the screen knows of."""
        return self._app.main.follower.state.step

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._app.main.follower.state.waiting_count

    @property
    def status(self) -> str:
        return self._app.main.follower.state.status

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self._pilot.press(*("space" if character == " " else character for character in text))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something to be so.

        Raises:
            TimeoutError: it never was.
        """
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await self._pilot.pause(0.02)
        await self._pilot.pause(0.1)

    async def next_step_or_idle(self) -> None:
        """Wait for what a running engine does next."""
        before = self.step
        await self.until(lambda: self.step > before or self.status == "idle")

    async def one_step(self) -> None:
        """Run one step of the paused engine."""
        before = self.step
        await self.press("f8")
        await self.until(lambda: self.step > before)

    def picture(self) -> str:
        """What is seen now, as SVG."""
        return self._app.export_screenshot(title="cbtui")


@asynccontextmanager
async def screen(options: LaunchOptions, size: tuple[int, int]) -> AsyncIterator[Screen]:
    """The screen with its model loaded."""
    link = Link()
    driver = LoopDriver(options, link)
    app = CbtuiApp(link, options, driver=driver, pace=Pace())
    try:
        async with app.run_test(size=size) as pilot:
            one = Screen(app, pilot)
            await one.until(lambda: app.main.follower.state.model is not None)
            yield one
    finally:
        driver.close()
