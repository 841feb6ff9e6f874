"""The load generator's question, its words, and what starts and stops it."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.screens.load import Capacity, LoadScreen, outlook, spec_of, written
from cbtui.widgets.header import Header
from cbtui.widgets.prompt_bar import PromptBar
from engine.live import replay
from engine.live.load import LoadError, LoadNow, LoadSpec, StartLoad, StopLoad
from tests.app.replay import Feeder, drive


def ready(**changes: object) -> Feeder:
    feeder = Feeder()
    feeder.ready(**changes)
    return feeder


def test_g_asks_and_enter_starts_the_load() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "g")
        assert isinstance(app.screen, LoadScreen)
        app.screen.query_one("#load-rate", Input).value = "2.5"
        await pilot.press("enter")
        assert feeder.commands == [StartLoad(LoadSpec(rate_per_s=2.5))]
        assert "g stops it" in app.main.query_one(PromptBar).notice

    drive(feeder, script)


def test_g_stops_a_load_that_is_on() -> None:
    feeder = ready(load=LoadNow(LoadSpec(), 41))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert "load 2/s, 41 came" in plain(app.main.query_one(Header).visible_lines()[0])
        await pilot.press("escape", "g")
        assert feeder.commands == [StopLoad()]
        assert "after 41 requests" in app.main.query_one(PromptBar).notice

    drive(feeder, script)


def test_without_a_model_there_is_no_load() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "g")
        assert app.screen is app.main

    drive(Feeder(), script)


def test_a_recording_cannot_be_loaded() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "g")
        assert app.screen is app.main
        assert app.main.query_one(PromptBar).notice.startswith(replay.NO_MODEL)

    drive(ready(is_recording=True, refused=replay.REFUSED), script)


def test_a_mistake_is_said_at_once_and_starts_nothing() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "g")
        app.screen.query_one("#load-prompt", Input).value = "64-8"
        await pilot.pause()
        words = app.screen.query_one("#load-outlook", Static).content
        assert "range such as 8-64" in str(words)
        await pilot.press("enter")
        assert isinstance(app.screen, LoadScreen) and feeder.commands == []
        await pilot.press("escape")
        assert app.screen is app.main

    drive(feeder, script)


def test_what_is_written_is_read_back() -> None:
    spec = LoadSpec(rate_per_s=0.5, prompt_tokens=(3, 9), output_tokens=(4, 4), seed=12)
    assert spec_of(written(spec)) == spec
    assert spec_of(written(spec) | {"output": "4"}) == spec


@pytest.mark.parametrize(
    "wrong", [{"rate": "fast"}, {"rate": "-1"}, {"prompt": "8-"}, {"output": "x"}, {"seed": "1.5"}]
)
def test_what_cannot_be_read_is_an_error_in_words(wrong: dict[str, str]) -> None:
    with pytest.raises(LoadError):
        spec_of(written(LoadSpec()) | wrong)


def test_the_outlook_says_whether_the_queue_will_grow() -> None:
    capacity = Capacity(3, 8.0)
    assert outlook(LoadSpec(), capacity) == (
        "3 slots × 8 steps/s ÷ 40 output tokens: at most 0.6 requests a second. At 2 the queue will grow and "
        "grow."
    )
    assert "close" in outlook(LoadSpec(rate_per_s=0.55), capacity)
    assert "keeps up" in outlook(LoadSpec(rate_per_s=0.2), capacity)
    assert "the queue grows" in outlook(LoadSpec(), Capacity(1, None))
