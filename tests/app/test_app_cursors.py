"""The cursors of the packed row and the mask on the whole screen."""

from __future__ import annotations

from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from tests.app.replay import Feeder, drive, fake_records, traced_records


def last_line(panel: PackedRow | MaskGrid) -> str:
    return plain(panel.visible_lines()[-1])


def traced(step: int) -> Feeder:
    feeder = Feeder()
    feeder.play(traced_records("trace-continuous.jsonl"), upto=step)
    return feeder


def test_the_row_says_what_its_token_is_while_it_has_focus() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        row = app.main.query_one(PackedRow)
        assert last_line(row).startswith("12 tokens")
        row.focus()
        await pilot.press("right")
        assert last_line(row).startswith(" D p1  ·upon  id ") and "prediction is not used" in last_line(row)
        await pilot.press("end")
        assert last_line(row).startswith(" C p12  ·that  id ") and "→ ·can 43 %   or " in last_line(row)
        await pilot.press("escape", "tab", "tab")
        app.main.set_focus(None)
        await pilot.pause()
        assert last_line(row).startswith("12 tokens")

    drive(traced(7), script)


def test_the_row_scrolls_to_its_cursor_at_hundreds_of_tokens() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        row = app.main.query_one(PackedRow)
        assert "⟨+" in "".join(plain(line) for line in row.visible_lines())
        row.focus()
        await pilot.pause()
        assert "lines 1–" in str(row.border_title)
        await pilot.press("end")
        assert row.scroll_offset.y > 0 and "→" in last_line(row)
        await pilot.press("home")
        assert row.scroll_offset.y == 0
        await pilot.press("pagedown", "down", "up", "left")
        assert "id " in last_line(row)

    records = fake_records(caps=(3,) * 24, slots=24)
    feeder = Feeder()
    feeder.play(records, upto=1)
    drive(feeder, script, size=(80, 24))


def test_a_click_puts_the_cursor_on_a_token_and_on_a_cell() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.click("#row", offset=(28, 1))
        assert "·a  id " in last_line(app.main.query_one(PackedRow))
        await pilot.click("#mask", offset=(12, 3))
        assert "query D p1 ·upon may see D p1 ·upon: itself" in last_line(app.main.query_one(MaskGrid))

    drive(traced(7), script)


def test_the_mask_explains_other_sequences_and_cached_blocks() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        mask.focus()
        await pilot.press("down")
        assert last_line(mask) == "query B p10 ·to may not see D p9 ,: another sequence"
        await pilot.press("right")
        assert "query B p10 ·to may see B p0–p9: its own earlier tokens, cached in KV block" in last_line(
            mask
        )

    drive(traced(7), script)


def test_zooming_out_ends_with_all_in_sight_and_comes_back() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        await pilot.press("escape")
        titles = []
        for _ in range(4):
            await pilot.press("z")
            titles.append(str(mask.border_title))
        assert "half-block" in titles[1] and "overview" in titles[2] and "folded" in titles[3]
        await pilot.press("Z")
        assert "overview" in str(mask.border_title)

    feeder = Feeder()
    feeder.play(fake_records(caps=(3,) * 24, slots=24), upto=1)
    drive(feeder, script)
