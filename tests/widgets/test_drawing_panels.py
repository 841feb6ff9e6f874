from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from stage import Stage
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from cbtui.drawing.slot_history import SlotHistory
from cbtui.looks.pieces import plain
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from cbtui.widgets.timeline import Timeline
from cbtui.widgets.window_view import WindowView


class Host(App[None]):
    AUTO_FOCUS = None
    CSS = """
    PackedRow { height: 6; border: round $foreground; }
    MaskGrid { height: 1fr; border: round $foreground; }
    Timeline { height: 7; border: round $foreground; }
    """

    def compose(self) -> ComposeResult:
        yield PackedRow()
        yield MaskGrid()
        yield Timeline()

    @property
    def panels(self) -> list[WindowView]:
        return list(self.query(WindowView))

    def show(self, stage: Stage, **frame: object) -> None:
        for panel in self.panels:
            panel.show(stage.frame(**frame))  # type: ignore[arg-type]


def hosted(body: Callable[[Host, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    async def run() -> None:
        app = Host()
        async with app.run_test(size=size) as pilot:
            await body(app, pilot)

    asyncio.run(run())


def texts(panel: WindowView) -> list[str]:
    return [panel.render_line(y).text.rstrip() for y in range(panel.size.height)]


def test_an_empty_panel_says_what_it_will_show() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        app.show(Stage())
        for panel in app.panels:
            assert texts(panel)[0] == panel.PURPOSE[: panel.size.width]

    hosted(body)


def test_the_first_mixed_step_on_screen() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        app.show(Stage().tutorial().step(7))
        row, mask, timeline = app.panels
        assert row.border_title == "Packed row [1, 12] · 21 cached"
        assert texts(row)[0].startswith(" D prefill 10  Once│·upon")
        assert texts(row)[-1].startswith("12 tokens · 0 padding · 3 sampled")
        assert mask.border_title == "Mask 12 queries × 33 keys, folded"
        assert texts(mask)[1].startswith("D p0")
        assert texts(mask)[-1].startswith("█ new   ▒ cached")
        assert timeline.border_title == "Timeline  1 step a column"
        assert texts(timeline)[1:4] == ["0 A▄▄▄▄▄D", "1 B▄▄▄▄▄▄", "2 C▄▄▄▄▄▄"]

    hosted(body)


def test_only_lines_that_changed_are_drawn_again() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        stage = Stage().tutorial().step(20)
        app.show(stage)
        timeline = app.query_one(Timeline)
        before = [timeline.render_line(y) for y in range(5)]
        app.show(stage)
        assert all(timeline.render_line(y) is before[y] for y in range(5))
        app.show(stage.step())
        assert timeline.render_line(0) is before[0]
        assert timeline.render_line(1) is not before[1]

    hosted(body)


def test_the_cursor_in_true_cells_is_explained_and_pans() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        stage = Stage()
        stage.submit(("long", 5), tokens=300)
        app.show(stage.step())
        mask = app.query_one(MaskGrid)
        mask.zoom()
        mask.focus()
        await pilot.pause()
        assert mask.border_title == "Mask 300 queries × 300 keys · arrows move"
        # The cursor stands on the last query and its own key; the window goes where it is.
        assert texts(mask)[-1] == "query A p299 ·, may see A p299 ·,: itself"
        assert texts(mask)[-2].startswith("A p299  ██")
        assert "█✓  " in texts(mask)[-2]
        await pilot.press("up")
        assert texts(mask)[-1].endswith("may not see A p299 ·,: in its future")
        assert "✗" in "".join(texts(mask))
        await pilot.press(*["shift+up"] * 40, *["shift+left"] * 20)
        assert texts(mask)[1].startswith("A p0    ✓··")
        await pilot.press("right")
        assert texts(mask)[1].startswith("A p0    █✗·")
        mask.zoom(-1)
        await pilot.pause()
        assert texts(mask)[1].startswith("A p0 ")

    hosted(body)


def test_looking_back_draws_the_earlier_step_and_returns() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        stage = Stage().tutorial().step(30)
        app.show(stage)
        app.show(stage, step=7)
        timeline = app.query_one(Timeline)
        assert texts(timeline)[1] == "0 A▄▄▄▄▄D" + "▄" * 23
        assert timeline.visible_lines()[1][-1] == ("▄" * 23, "faint")
        assert texts(timeline)[4] == "  1   5 ▲7 10   15   20   25   30"
        assert texts(app.query_one(MaskGrid))[1].startswith("D p0")
        app.show(stage)
        assert texts(app.query_one(Timeline))[1] == "0 A▄▄▄▄▄D" + "▄" * 23

    hosted(body)


def test_more_slots_than_lines_scroll_and_the_title_says_which() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        stage = Stage(slots=64)
        stage.submit(*(("x", 30) for _ in range(64)), tokens=5)
        app.show(stage.step(3))
        timeline = app.query_one(Timeline)
        assert timeline.border_title == "Timeline  1 step a column · 0–3 of 64"
        timeline.scroll_to_slot(20)
        await pilot.pause()
        assert timeline.border_title == "Timeline  1 step a column · 20–23 of 64"
        assert texts(timeline)[0].startswith("20 U▄▄")
        timeline.scroll_to_slot(999)
        await pilot.pause()
        assert texts(timeline)[3].startswith("63 L▄▄")

    hosted(body)


def test_a_finished_run_is_drawn_beside_on_a_shared_scale() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        static, continuous = Stage("static").tutorial().drain(), Stage().tutorial().drain()
        timeline = app.query_one(Timeline)
        lanes = SlotHistory(continuous.records)
        timeline.draw_run(lanes, continuous.badges, steps=480, name="Timeline continuous")
        assert timeline.border_title == "Timeline continuous  8 steps a column"
        assert len(texts(timeline)[3]) == 2 + 38
        timeline.draw_run(SlotHistory(static.records), static.badges, name="Timeline static")
        assert len(texts(timeline)[3]) == 2 + 60
        assert texts(timeline)[0].count("barrier┤") == 2

    hosted(body)


@pytest.mark.parametrize("size", [(20, 18), (24, 20), (60, 18), (80, 24), (240, 70)])
@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
def test_any_size_and_mode_draws(size: tuple[int, int], mode: str) -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        stage = Stage(mode).tutorial()
        for steps in (1, 6, 40):
            app.show(stage.step(steps))
            app.query_one(MaskGrid).zoom()
            for panel in app.panels:
                assert [plain(line) for line in panel.visible_lines()]
                assert all(
                    panel.render_line(y).cell_length == panel.size.width for y in range(panel.size.height)
                )

    hosted(body, size)


def test_colours_follow_the_theme() -> None:
    async def body(app: Host, pilot: Pilot[None]) -> None:
        app.show(Stage().tutorial().step(7))
        timeline = app.query_one(Timeline)
        dark = timeline.render_line(1)
        app.theme = "textual-light"
        await pilot.pause()
        assert timeline.render_line(1) != dark
        assert timeline.render_line(1).text == dark.text

    hosted(body)
