"""The screen's thread may stand still for a while: the engine does not, and what was missed is drawn next."""

from __future__ import annotations

import asyncio
import time

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from engine.fake import FakeRunner
from engine.live.commands import PromptRequest, Submit


def test_a_screen_that_is_held_up_holds_nothing_up_and_misses_nothing() -> None:
    link = Link()
    options = LaunchOptions(speed=None)
    driver = LoopDriver(options, link, lambda options: FakeRunner())
    app = CbtuiApp(link, options, driver=driver, pace=Pace())

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            while app.main.follower.state.status != "idle":
                await pilot.pause(0.02)
            link.commands.put(Submit((PromptRequest(prompt="ab", max_tokens=300),)))
            while link.mailbox.latest().step < 300:
                time.sleep(0.01)  # on purpose in the screen's own thread
            assert app.main.follower.state.step < 300, "it has drawn nothing meanwhile"
            while app.main.follower.state.step < 300:
                await pilot.pause(0.02)
            assert app.main.follower.num_missed == 0
            assert len(app.main.follower.ledger["r0"].output_token_ids) == 300
            assert app.main.follower.ledger["r0"].finish is not None
            app.exit()

    asyncio.run(body())
