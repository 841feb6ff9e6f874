"""Quitting: asking once, ctrl+c, and what the engine is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from cbtui.app import INTERRUPTED, CbtuiApp
from cbtui.screens.confirm import AskScreen
from cbtui.widgets.prompt_bar import PromptBar
from engine.live.commands import Close
from tests.app.replay import Feeder, drive, fake_records


def empty() -> Feeder:
    feeder = Feeder()
    feeder.ready()
    return feeder


@pytest.mark.parametrize("keys", [("escape", "q"), ("ctrl+q",)])
def test_quitting_with_nothing_unfinished_needs_no_question(keys: tuple[str, ...]) -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)

    app = drive(feeder, script)
    assert app.return_code == 0
    assert feeder.commands == [Close()]


def test_unfinished_requests_are_asked_about_once() -> None:
    feeder = Feeder()
    feeder.play(fake_records(), upto=1)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+q")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("escape")
        assert app.screen is app.main
        await pilot.press("escape", "q", "q")

    assert drive(feeder, script).return_code == 0
    assert feeder.commands == [Close()]


def test_ctrl_c_says_again_to_quit_and_the_second_quits_with_130() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+c")
        assert app.main.query_one(PromptBar).notice == "ctrl+c again to quit"
        await pilot.press("ctrl+c")

    assert drive(empty(), script).return_code == INTERRUPTED == 130


def test_any_other_key_takes_a_first_ctrl_c_back() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+c", "a", "ctrl+c")
        assert app.is_running and app.return_code is None
        app.exit()

    drive(empty(), script)


def test_ctrl_c_copies_a_selection_instead() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "i", "ctrl+shift+a", "ctrl+c", "ctrl+c")
        assert app.clipboard == "Hi"
        assert app.return_code is None
        app.exit()

    drive(empty(), script)


class StubbornDriver:
    """An engine that ends only when its model is ended."""

    def __init__(self) -> None:
        import threading

        self.is_closed = threading.Event()
        self.was_run = threading.Event()

    def run(self, should_stop: Callable[[], bool]) -> None:
        self.was_run.set()
        self.is_closed.wait(5)

    def close(self) -> None:
        self.is_closed.set()


def test_quitting_ends_the_model_and_never_waits_for_a_forward() -> None:
    feeder, driver = empty(), StubbornDriver()
    app = CbtuiApp(feeder.link, driver=driver)

    async def run() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            assert await asyncio.to_thread(driver.was_run.wait, 5)
            await pilot.press("ctrl+q")

    asyncio.run(run())
    assert driver.is_closed.wait(5)
    assert feeder.commands == [Close()]


class BrokenDriver:
    def run(self, should_stop: Callable[[], bool]) -> None:
        raise RuntimeError("the scheduler lost a block")

    def close(self) -> None:
        pass


def test_a_fault_in_the_engines_thread_is_a_panel_not_a_traceback() -> None:
    feeder = empty()
    app = CbtuiApp(feeder.link, driver=BrokenDriver())

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            for _ in range(50):
                await pilot.pause(0.02)
                if app.main.follower.state.failure is not None:
                    break
            failure = app.main.follower.state.failure
            assert failure is not None and failure.message == "RuntimeError: the scheduler lost a block"
            assert app.main.query_one("#centre").display
            app.exit()

    asyncio.run(run())
