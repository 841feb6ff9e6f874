"""No line of any panel is wider than what is visible of it, whatever is shown, at any size."""

from __future__ import annotations

from functools import cache

import pytest
from sight import unseen
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.lessons.scenes import LESSONS
from cbtui.looks.pieces import plain
from cbtui.options import LaunchOptions
from cbtui.screens.lesson import LessonScreen
from cbtui.screens.race import RaceScreen
from cbtui.widgets.lines import LinesView
from engine.stream.records import Record
from tests.app.race_track import Track
from tests.app.replay import Feeder, drive, fake_records, later, traced_records

SIZES = ((160, 50), (120, 40), (80, 24), (60, 18))
FEWER = ((80, 24), (60, 18))


@cache
def recorded(name: str) -> tuple[Record, ...]:
    if name == "twice":
        static = traced_records("trace-static.jsonl")
        return (*static, *later(traced_records("trace-continuous.jsonl"), static[-1].step, 6))
    if name == "crowd":
        return tuple(fake_records(caps=(3, 9) * 100, slots=64, mode="static"))[:6]
    return tuple(traced_records(f"trace-{name}.jsonl"))


async def at_every_size(
    app: CbtuiApp, pilot: Pilot[None], what: str, sizes: tuple[tuple[int, int], ...] = FEWER
) -> None:
    for size in sizes:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert unseen(app.screen) == [], f"{what} at {size}"


@pytest.mark.parametrize(
    ("name", "step", "status"),
    [
        ("static", 1, "running"),
        ("static", 60, "paused"),
        ("continuous", 7, "paused"),
        ("continuous-padded", 9, "running"),
        ("switched", 12, "paused"),
        ("crowd", 5, "running"),
        ("twice", 10_000, "idle"),
    ],
)
def test_no_line_of_the_main_screen_is_wider_than_what_is_visible(name: str, step: int, status: str) -> None:
    feeder = Feeder()
    feeder.play(recorded(name), upto=step, status=status, paused=status == "paused")

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        await at_every_size(app, pilot, f"{name} at step {step}", SIZES)

    drive(feeder, script)


def test_a_panel_that_begins_to_scroll_keeps_its_lines_whole() -> None:
    """The scroll bar comes when the words grow, after they were broken into lines."""
    feeder = Feeder()
    records = recorded("static")

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        for step in (2, 23, 24, 60):
            feeder.play(records[feeder.link.history.total :], upto=step, status="paused", paused=True)
            app.main.look()
            await pilot.pause()
            assert unseen(app.screen) == [], f"step {step}"
        await pilot.press("[", "{")
        assert unseen(app.screen) == []

    feeder.play(records, upto=1, status="paused", paused=True)
    for size in ((160, 50), (120, 40)):
        drive(feeder, script, size=size)
        feeder = Feeder()
        feeder.play(records, upto=1, status="paused", paused=True)


@pytest.mark.parametrize("tab", ["2", "3", "4", "5"])
def test_no_line_of_a_tab_is_wider_than_what_is_visible(tab: str) -> None:
    feeder = Feeder()
    feeder.play(recorded("static"), upto=60)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", tab)
        assert unseen(app.screen) == []

    drive(feeder, script, size=(80, 24))


@pytest.mark.parametrize("mode", ["continuous", "static"])
def test_what_an_empty_panel_is_for_is_said_to_its_end(mode: str) -> None:
    feeder = Feeder()
    feeder.ready(mode=mode)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        for tab in "12345":
            await pilot.press(tab)
            views = [view for view in app.screen.query(LinesView) if view.display and view.region.area]
            said = [plain(line) for view in views for line in view.visible_lines()]
            assert said and not [line for line in said if "…" in line]

    drive(feeder, script, size=(80, 24))


def test_no_text_in_front_is_cut_off() -> None:
    feeder = Feeder()
    feeder.play(recorded("static"), upto=23, status="paused", paused=True)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "down", "down", "down")
        for keys in ("?", "M", "o", "r", "l", "g", ":", "u", "S", "k", "enter", "d d", "x", "q"):
            await pilot.press(*keys.split())
            assert app.screen is not app.main, keys
            await at_every_size(app, pilot, f"key {keys}", ((60, 18), (80, 24)))
            await pilot.press("escape")
            assert app.screen is app.main

    drive(feeder, script)


def test_all_of_help_is_seen_at_160_by_50() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "?")
        assert app.screen.query_one(".box").max_scroll_y == 0

    feeder = Feeder()
    feeder.ready()
    drive(feeder, script)


def test_no_line_of_a_race_is_wider_than_what_is_visible() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r", "enter")
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        track = Track(screen.guest)
        for rounds in (0, 120, 1000):
            track.rounds(rounds)
            screen.look()
            await pilot.pause()
            await at_every_size(app, pilot, f"a race after {rounds} rounds")
        await pilot.press("v")
        await at_every_size(app, pilot, "the figures of a race")

    drive(feeder, script)


def test_no_line_of_a_lesson_is_wider_than_what_is_visible() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        for number in range(1, len(LESSONS) + 1):
            screen = app.screen
            assert isinstance(screen, LessonScreen) and screen.number == number
            for _ in range(2):
                await pilot.press("space", "space")
            await at_every_size(app, pilot, f"lesson {number}")
            await pilot.press("n")

    drive(Feeder(), script, options=LaunchOptions(lesson=1))
