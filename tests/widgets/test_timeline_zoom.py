"""The timeline's scales: all of it, a step a column, between; scrolling, and following what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from stage import Stage
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from cbtui.widgets.messages import StepChosen
from cbtui.widgets.timeline import Timeline, next_zoom, zoom_scale


class Host(App[None]):
    CSS = "Timeline { height: 7; border: round $foreground; }"

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[int] = []

    def compose(self) -> ComposeResult:
        yield Timeline()

    def on_step_chosen(self, event: StepChosen) -> None:
        self.chosen.append(event.step)


def hosted(body: Callable[[Host, Timeline, Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        app = Host()
        async with app.run_test(size=(64, 10)) as pilot:
            await body(app, app.query_one(Timeline), pilot)

    asyncio.run(run())


def title(timeline: Timeline) -> str:
    return str(timeline.border_title).removeprefix("Timeline  ")


def row(timeline: Timeline, y: int) -> str:
    return timeline.render_line(y).text.rstrip()


@pytest.mark.parametrize(("whole", "between"), [(1, 1), (2, 2), (4, 2), (8, 4), (64, 8), (1024, 32)])
def test_between_lies_between(whole: int, between: int) -> None:
    assert (zoom_scale("whole", whole), zoom_scale("steps", whole)) == (whole, 1)
    assert zoom_scale("between", whole) == between or between in (1, whole)


def test_the_zooms_come_round_and_those_that_look_the_same_are_left_out() -> None:
    assert next_zoom("whole", 64) == "steps"
    assert next_zoom("steps", 64) == "between"
    assert next_zoom("between", 64) == "whole"
    assert next_zoom("steps", 2) == "whole"


def test_a_step_a_column_shows_the_last_ones_and_follows_them() -> None:
    async def body(app: Host, timeline: Timeline, pilot: Pilot[None]) -> None:
        stage = Stage().tutorial().step(250)
        timeline.show(stage.frame())
        assert title(timeline) == "8 steps a column"
        assert timeline.zoom() == "timeline: 1 step a column; ←→ scroll it when it has focus"
        assert title(timeline) == "1 step a column · steps 191–250 of 250"
        timeline.show(stage.step(5).frame())
        assert title(timeline) == "1 step a column · steps 196–255 of 255"
        assert row(timeline, 3) == "2 " + "▄" * 60
        timeline.zoom()
        assert title(timeline).startswith("4 steps a column · steps ")
        timeline.zoom()
        assert title(timeline) == "8 steps a column"

    hosted(body)


def test_arrows_scroll_and_scrolling_to_the_end_follows_again() -> None:
    async def body(app: Host, timeline: Timeline, pilot: Pilot[None]) -> None:
        stage = Stage().tutorial().step(250)
        timeline.show(stage.frame())
        timeline.zoom()
        timeline.focus()
        await pilot.press("left", "left")
        assert title(timeline) == "1 step a column · steps 175–234 of 250"
        timeline.show(stage.step(1).frame())
        assert title(timeline) == "1 step a column · steps 175–234 of 251"
        await pilot.press("right", "right", "right")
        timeline.show(stage.step(1).frame())
        assert title(timeline) == "1 step a column · steps 193–252 of 252"
        await pilot.press(*["left"] * 60)
        assert title(timeline) == "1 step a column · steps 1–60 of 252"
        assert row(timeline, 1).startswith("0 A▄▄▄▄▄D")

    hosted(body)


def test_looking_back_brings_the_step_into_view_with_what_came_later_faint() -> None:
    async def body(app: Host, timeline: Timeline, pilot: Pilot[None]) -> None:
        stage = Stage().tutorial().step(300)
        timeline.show(stage.frame())
        timeline.zoom()
        timeline.show(stage.frame(step=100))
        assert title(timeline) == "1 step a column · steps 60–119 of 300"
        assert "▲100" in row(timeline, 4)
        assert timeline.visible_lines()[1][-1] == ("▄" * 19, "faint")

    hosted(body)


def test_a_click_names_the_last_step_of_its_column() -> None:
    async def body(app: Host, timeline: Timeline, pilot: Pilot[None]) -> None:
        timeline.show(Stage().tutorial().step(300).frame())
        await pilot.click(Timeline, offset=(3, 2))
        await pilot.click(Timeline, offset=(3 + 37, 2))
        await pilot.click(Timeline, offset=(1, 2))
        timeline.zoom()
        await pilot.click(Timeline, offset=(3, 2))
        await pilot.pause()
        assert app.chosen == [8, 300, 241]

    hosted(body)


def test_a_short_stretch_has_nothing_to_zoom() -> None:
    async def body(app: Host, timeline: Timeline, pilot: Pilot[None]) -> None:
        timeline.show(Stage().tutorial().step(20).frame())
        assert timeline.zoom() == "the whole stretch fits, one step a column"
        assert title(timeline) == "1 step a column"

    hosted(body)
