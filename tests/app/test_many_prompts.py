"""Five hundred prompts pasted at once into a screen with an engine behind it: every one ends, once."""

from __future__ import annotations

import asyncio
from collections import Counter

from textual.events import Paste

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from cbtui.screens.confirm import AskScreen
from engine.config import EngineConfig
from engine.fake import FakeRunner


def test_five_hundred_prompts_pasted_at_once_all_end_once() -> None:
    options = LaunchOptions(config=EngineConfig(max_num_seqs=16), speed=None, raw=True, max_tokens=3)
    link = Link()
    app = CbtuiApp(link, options, driver=LoopDriver(options, link, lambda _: FakeRunner()), pace=Pace())

    async def body() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            while link.mailbox.latest().model is None:
                await pilot.pause(0.02)
            app.post_message(Paste("\n".join(f"prompt {number}" for number in range(500))))
            while not isinstance(app.screen, AskScreen):
                await pilot.pause(0.02)
            await pilot.press("enter")
            while len(app.main.follower.ledger.finished) < 500:
                await pilot.pause(0.02)
            ended = Counter(app.main.follower.ledger.finished)
            assert set(ended.values()) == {1}
            stories = app.main.follower.ledger.stories.values()
            assert [story.request.prompt_text for story in stories] == [f"prompt {n}" for n in range(500)]
            assert {story.finish.reason for story in stories if story.finish} == {"length"}
            await pilot.press("ctrl+q")

    asyncio.run(asyncio.wait_for(body(), 120))
    assert app.return_code == 0
