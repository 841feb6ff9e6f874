"""The line panels in a small app: only changed lines are redrawn, and keys and mouse move the cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from cbtui.following.frame import Frame
from cbtui.widgets.messages import RequestOpened, RequestSelected, SlotsScrolled
from cbtui.widgets.slots import Slots
from cbtui.widgets.what_happened import WhatHappened
from tests.widgets.stage import Stage


class Panels(App[None]):
    CSS = "Slots { height: 5; } WhatHappened { height: 10; }"

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.shown = frame
        self.heard: list[object] = []

    def compose(self) -> ComposeResult:
        yield Slots()
        yield WhatHappened()

    def on_mount(self) -> None:
        self.query_one(Slots).focus()
        self.show(self.shown)

    def show(self, frame: Frame) -> None:
        self.shown = frame
        self.query_one(Slots).show(frame)
        self.query_one(WhatHappened).show(frame)

    def on_request_selected(self, message: RequestSelected) -> None:
        self.heard.append(message.request_id)
        self.show(replace(self.shown, selected=message.request_id))

    def on_request_opened(self, message: RequestOpened) -> None:
        self.heard.append(("open", message.request_id))

    def on_slots_scrolled(self, message: SlotsScrolled) -> None:
        self.heard.append(("first", message.first))


def play(frame: Frame, act: Callable[[Panels, Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        app = Panels(frame)
        async with app.run_test(size=(120, 24)) as pilot:
            await pilot.pause()
            await act(app, pilot)

    asyncio.run(run())


def test_lines_are_as_wide_as_the_panel() -> None:
    async def act(app: Panels, pilot: Pilot[None]) -> None:
        slots = app.query_one(Slots)
        strips = [slots.render_line(y) for y in range(3)]
        assert [strip.cell_length for strip in strips] == [
            119,
            119,
            119,
        ]  # the scroll bar's column stays free
        assert "prefill 10" in strips[0].text
        assert str(slots.border_title) == "Slots 3/3"

    play(Stage().tutorial().step(7).frame(), act)


def test_a_frame_redraws_only_the_lines_that_changed() -> None:
    stage = Stage("static").tutorial().step(301)

    async def act(app: Panels, pilot: Pilot[None]) -> None:
        slots = app.query_one(Slots)
        drawn: list[int] = []
        refresh_line = slots.refresh_line
        slots.refresh_line = lambda y: (drawn.append(y), refresh_line(y))[1]  # type: ignore[method-assign]
        app.show(app.shown)
        assert drawn == []
        app.show(stage.step().frame())
        assert drawn == [0, 1, 2]

    play(stage.frame(), act)


def test_keys_move_the_cursor_and_open() -> None:
    async def act(app: Panels, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "enter")
        assert app.heard == ["r3", "r1", ("open", "r1")]
        await pilot.press("down", "down", "down", "up")
        assert app.heard[3:] == ["r2", "r1"]

    play(Stage().tutorial().step(7).frame(), act)


def test_a_click_selects_and_a_double_click_opens() -> None:
    async def act(app: Panels, pilot: Pilot[None]) -> None:
        await pilot.click(Slots, offset=(30, 2))
        assert app.heard == ["r2"]
        await pilot.click(Slots, offset=(30, 1), times=2)
        assert ("open", "r1") in app.heard

    play(Stage().tutorial().step(7).frame(), act)


def test_more_slots_than_lines_scroll_and_say_where() -> None:
    stage = Stage(slots=64)
    stage.submit(*[(f"prompt {n}", 40) for n in range(64)])

    async def act(app: Panels, pilot: Pilot[None]) -> None:
        slots = app.query_one(Slots)
        assert "0–4 of 64" in str(slots.border_title)
        slots.scroll_to_slot(10)
        await pilot.pause()
        assert "10–14 of 64" in str(slots.border_title)
        assert ("first", 10) in app.heard
        assert slots.render_line(0).text.startswith(" 10  K")
        await pilot.press(*["down"] * 6)
        assert slots.first_line <= 5 <= slots.first_line + 4

    play(stage.step(3).frame(), act)


def test_a_resize_draws_anew() -> None:
    async def act(app: Panels, pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(70, 20)
        await pilot.pause()
        assert app.query_one(Slots).render_line(0).cell_length == 69
        assert (
            max(len(strip.text.rstrip()) for strip in map(app.query_one(WhatHappened).render_line, range(8)))
            <= 69
        )

    play(Stage().tutorial().step(7).frame("paused"), act)
