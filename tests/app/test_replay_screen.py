"""A recorded trace in the screen, looked at like an engine; and a screen's run, recorded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.cli import models
from cbtui.following.driver import LoopDriver, ReplayDriver
from cbtui.following.link import Link
from cbtui.following.overheard import overheard
from cbtui.following.pace import Pace
from cbtui.opening import run_app
from cbtui.options import LaunchOptions
from cbtui.widgets.prompt_bar import PromptBar
from engine.fake import FakeRunner
from engine.live.commands import Close, PromptRequest
from engine.stream.records import StepRecord
from engine.stream.trace_files import read_trace

TRACE = Path(__file__).parent.parent / "data" / "trace-continuous.jsonl"


async def until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    for _ in range(200):
        await pilot.pause(0.02)
        if is_so():
            return
    raise AssertionError("it never was so")


def play(options: LaunchOptions, script: Callable[[CbtuiApp, Pilot[None]], Awaitable[None]]) -> None:
    link = Link()
    driver = ReplayDriver(TRACE, options, link)
    app = CbtuiApp(link, options, driver=driver, pace=Pace())

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            await script(app, pilot)

    try:
        asyncio.run(run())
    finally:
        driver.close()


def test_it_opens_at_the_end_and_time_travel_works() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        last = read_trace(TRACE).records[-1].step
        await until(pilot, lambda: app.main.follower.state.step == last)
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert app.main.shown == last - 1
        assert "recorded" in app.export_screenshot()

    play(LaunchOptions(replay=TRACE, paused=True, speed=8, replay_upto=float("inf")), script)


def test_steps_are_taken_by_key_and_prompts_refused() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.main.follower.state.status == "paused")
        await pilot.press("s", "s")
        await until(pilot, lambda: app.main.follower.state.step == 2)
        app.main.query_one(PromptBar).line.focus()
        await pilot.press("h", "i", "enter")
        await until(pilot, lambda: app.main.follower.state.rejection is not None)

    play(LaunchOptions(replay=TRACE, paused=True), script)


@pytest.mark.parametrize("name", ["a.trace", "a.trace.gz"])
def test_a_screens_run_is_recorded_as_it_happens(tmp_path: Path, name: str) -> None:
    requests = tuple(PromptRequest(prompt=f"p{n}", max_tokens=3 + n) for n in range(4))
    options = LaunchOptions(record=tmp_path / name, requests=requests, speed=None)
    with overheard(options) as link:
        driver = LoopDriver(options, link, lambda _: FakeRunner())
        thread = threading.Thread(target=driver.run, args=(lambda: False,))
        thread.start()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if link.history.total and link.mailbox.latest().status == "idle":
                break
            time.sleep(0.01)
        link.commands.put(Close())
        thread.join(20)
    trace = read_trace(tmp_path / name)
    assert (trace.header.model, trace.error) == ("fake", "")
    assert list(trace.records) == link.history.since(0)[1]
    assert sum(len(r.events.finished) for r in trace.records if isinstance(r, StepRecord)) == 4


def test_a_full_disk_ends_the_recording_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said on the screen at once, again once that is closed, and by the exit code."""
    requests = (PromptRequest(prompt="p", max_tokens=5),)
    options = LaunchOptions(record=Path("/dev/full"), requests=requests, speed=None)
    words = "recording /dev/full stopped: No space left on device"
    monkeypatch.setattr(models, "make_runner", lambda _: FakeRunner())

    def run(app: CbtuiApp) -> None:
        async def look() -> None:
            async with app.run_test(size=(160, 50)) as pilot:
                await until(pilot, lambda: app.main.follower.state.status == "idle")
                await until(pilot, lambda: words in app.export_screenshot().replace("&#160;", " "))
                assert app.main.follower.state.step == 5

        asyncio.run(look())

    monkeypatch.setattr(CbtuiApp, "run", run)
    assert run_app(options) == 1
    assert capsys.readouterr().err == f"cbtui: {words}\n"
