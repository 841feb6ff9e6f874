"""The arrangements: what stands where at which size, and resizing while it runs."""

from __future__ import annotations

from itertools import combinations

import pytest
from textual.content import Content
from textual.geometry import Region, Size
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.screens.arrangement import Needs, arrange, kind_of
from cbtui.screens.deck import Deck
from cbtui.screens.too_small import TooSmallScreen
from cbtui.widgets.centre import Centre, lines_of
from cbtui.widgets.prompt_bar import PromptBar
from tests.app.replay import Feeder, drive, fake_records

ALL = {
    "header",
    "slots",
    "waiting",
    "counters",
    "row",
    "mask",
    "finished",
    "happened",
    "timeline",
    "prompt",
    "keys",
}


def shown(app: CbtuiApp) -> set[str]:
    deck = app.main.query_one(Deck)
    return {child.id or "" for child in deck.children if child.display and child.region.area}


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        ((160, 50), "large"),
        ((200, 60), "large"),
        ((140, 44), "large"),
        ((139, 50), "medium"),
        ((120, 40), "medium"),
        ((160, 34), "medium"),
        ((80, 24), "small"),
        ((60, 18), "small"),
        ((59, 18), "tiny"),
        ((60, 17), "tiny"),
    ],
)
def test_the_kind_follows_the_size(size: tuple[int, int], kind: str) -> None:
    assert kind_of(Size(*size)) == kind


@pytest.mark.parametrize("slots", [1, 3, 8, 64])
@pytest.mark.parametrize("has_twin", [False, True])
@pytest.mark.parametrize("tab", range(5))
@pytest.mark.parametrize(
    "size", [(160, 50), (140, 44), (300, 90), (120, 40), (100, 34), (139, 43), (80, 24), (60, 18), (99, 33)]
)
def test_panels_fill_the_screen_without_overlap(
    size: tuple[int, int], tab: int, has_twin: bool, slots: int
) -> None:
    screen = Region(0, 0, *size)
    regions = arrange(Size(*size), Needs(slots=slots, tab=tab, has_twin=has_twin)).regions
    # At medium sizes the heads of the tabs stand on a border.
    on_ground = {n: r for n, r in regions.items() if n != "tabs" or kind_of(Size(*size)) == "small"}
    for name, region in regions.items():
        assert region.width > 0 and region.height > 0, name
        assert screen.contains_region(region), name
    for (one, a), (other, b) in combinations(on_ground.items(), 2):
        assert not a.overlaps(b), f"{one} and {other}"
    assert (
        sum(region.area for name, region in on_ground.items() if name != "tabs" or size[1] < 34)
        == screen.area
    )


MIDDLE_SIZES = [(160, 50), (140, 44), (120, 40), (80, 24), (60, 18)]


@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.parametrize("lines", [6, 8, 12, 40])
@pytest.mark.parametrize("size", MIDDLE_SIZES)
def test_the_middle_box_lies_on_the_screen(size: tuple[int, int], lines: int, slots: int) -> None:
    regions = arrange(Size(*size), Needs(slots=slots, centre=lambda _: lines)).regions
    assert Region(0, 0, *size).contains_region(regions["centre"])


@pytest.mark.parametrize("is_loading", [False, True])
@pytest.mark.parametrize("size", MIDDLE_SIZES)
def test_the_middle_box_has_room_for_its_words(size: tuple[int, int], is_loading: bool) -> None:
    feeder = Feeder()
    if not is_loading:
        feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        centre = app.main.query_one(Centre)
        text = centre.content
        assert isinstance(text, Content)
        assert lines_of(text, centre.outer_size.width) == centre.outer_size.height

    drive(feeder, script, size=size)


def test_large_shows_all_panels() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert shown(app) == ALL

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script)


def test_medium_has_counters_in_one_line_and_finished_as_a_tab_of_waiting() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert shown(app) == (ALL - {"counters", "finished"}) | {"brief", "tabs"}
        await pilot.press("escape", "2")
        assert shown(app) == (ALL - {"counters", "waiting"}) | {"brief", "tabs"}

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script, size=(120, 40))


def test_small_has_five_tabs_under_one_status_line() -> None:
    always = {"header", "tabs", "news", "prompt", "keys"}

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert shown(app) == always | {"slots", "waiting", "row"}
        await pilot.press("escape")
        for key, panel in (("2", "mask"), ("3", "timeline"), ("4", "finished"), ("5", "counters")):
            await pilot.press(key)
            assert shown(app) == always | {panel}
            assert app.focused is None or app.focused.id == panel
        await pilot.press("1")
        assert shown(app) == always | {"slots", "waiting", "row"}

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script, size=(80, 24))


def test_tab_heads_take_no_focus_but_clicks() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        tabs = app.main.query_one("#tabs")
        assert not tabs.can_focus
        await pilot.click("#tabs", offset=(12, 0))
        assert "mask" in shown(app)

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script, size=(80, 24))


def test_resizing_through_all_sizes_keeps_text_focus_and_what_is_shown() -> None:
    feeder = Feeder()
    records = fake_records()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "i")
        before = shown(app)
        for size in ((120, 40), (80, 24), (60, 18), (40, 10), (80, 24), (200, 60), (10, 3), (160, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert isinstance(app.screen, TooSmallScreen) == (kind_of(Size(*size)) == "tiny")
            feeder.play(records[feeder.link.history.total :], upto=app.main.follower.state.step + 1)
            app.main.look()
            await pilot.pause()
        bar = app.main.query_one(PromptBar)
        assert bar.line.value == "Hi" and bar.line.has_focus
        assert shown(app) == before
        await pilot.press("exclamation_mark")
        assert bar.line.value == "Hi!"

    feeder.play(records, upto=1)
    drive(feeder, script)


def test_starting_too_small_works_once_enlarged() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert isinstance(app.screen, TooSmallScreen)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.screen is app.main and "slots" in shown(app)
        assert app.main.query_one(PromptBar).line.has_focus

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script, size=(50, 12))


def test_more_slots_make_room_for_themselves() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        height = app.main.query_one("#slots").region.height
        feeder.play(fake_records(slots=6), upto=1)
        app.main.look()
        await pilot.pause()
        assert app.main.query_one("#slots").region.height == height + 3

    feeder.ready()
    drive(feeder, script)
