"""Pictures of the lessons at their telling stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.lessons.scenes import LESSONS
from cbtui.options import LaunchOptions
from cbtui.screens.lesson import LessonScreen

Picture = Callable[..., bool]


def at_stop(number: int) -> Callable[[Pilot[None]], Awaitable[None]]:
    async def run(pilot: Pilot[None]) -> None:
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, LessonScreen)
        for _ in range(number):
            await pilot.press("space")
            if not screen.play.moment.at_stop:
                await pilot.press("space")  # a second one skips the way
        await pilot.pause()

    return run


def app(number: int) -> CbtuiApp:
    return CbtuiApp(options=LaunchOptions(lesson=number))


@pytest.mark.parametrize("number", range(1, len(LESSONS) + 1))
def test_lesson(snap_compare: Picture, number: int) -> None:
    assert snap_compare(app(number), terminal_size=(120, 40), run_before=at_stop(2))


@pytest.mark.parametrize("number", [1, 4, 6])
def test_lesson_at_80_by_24(snap_compare: Picture, number: int) -> None:
    assert snap_compare(app(number), terminal_size=(80, 24), run_before=at_stop(2))


@pytest.mark.parametrize("number", [3, 4])
def test_lesson_at_160_by_50(snap_compare: Picture, number: int) -> None:
    assert snap_compare(app(number), terminal_size=(160, 50), run_before=at_stop(3))
