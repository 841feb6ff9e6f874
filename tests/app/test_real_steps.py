"""Panels and cursors on recorded steps of the default model: a prompt of 512 tokens, one that shares its
blocks, one that gives way, texts of every kind."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.screens.blocks import BlocksScreen
from cbtui.widgets.lines import LinesView
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from engine.live.state import Arriving
from engine.stream.records import StepRecord
from tests.app.replay import Feeder, drive, state_after, traced_records

#: The step in which the prompt of 512 tokens goes in beside two decodes, in one piece.
LONG_STEP = 6


def traced(name: str, step: int | None = None) -> Feeder:
    feeder = Feeder()
    feeder.play(traced_records(f"trace-{name}.jsonl"), upto=step)
    return feeder


def text(app: CbtuiApp, panel: str) -> str:
    return "\n".join(plain(line) for line in app.screen.query_one(panel, LinesView).visible_lines())


def last_line(app: CbtuiApp, panel: str) -> str:
    return text(app, panel).splitlines()[-1]


def test_now_has_the_live_queue_and_the_last_step_has_its_own() -> None:
    records = traced_records("trace-continuous.jsonl")
    feeder = Feeder()
    feeder.play(records, upto=7)
    (newest,) = [record for record in records if isinstance(record, StepRecord) and record.step == 7]
    arriving = (Arriving("r6", 6, "One more", 4, "encoding"),)
    feeder.publish(state_after(newest, arriving_count=1, arriving=arriving))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert "One more" in text(app, "#waiting") and "being tokenized" in text(app, "#waiting")
        await pilot.press("escape", "left_square_bracket")
        assert app.main.shown == 7
        assert "Quantum" in text(app, "#waiting") and "One more" not in text(app, "#waiting")
        await pilot.press("right_square_bracket")
        assert app.main.shown is None and "One more" in text(app, "#waiting")

    drive(feeder, script)


def test_curly_brackets_stop_where_somebody_gave_way() -> None:
    records = traced_records("trace-preempted.jsonl")
    step = next(record.step for record in records if record.events.preempted)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "left_curly_bracket")
        assert app.main.shown == step
        assert "D gave its own" in text(app, "#happened")
        assert "preempted" in text(app, "#waiting")
        await pilot.press("left_curly_bracket", "left_curly_bracket")
        assert app.main.shown == 6 and "A finished (length)" in text(app, "#happened")
        await pilot.press("right_curly_bracket")
        assert app.main.shown == 7 and "D entered it at" in text(app, "#happened")

    drive(traced("preempted"), script)


@pytest.mark.parametrize(
    ("size", "stored"),
    [
        ((160, 50), "its key and value are stored; its prediction is not used"),
        ((80, 24), "only its key and value are used"),
    ],
)
def test_a_row_of_512_wraps_and_scrolls_to_its_sampled_token(size: tuple[int, int], stored: str) -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        row = app.main.query_one(PackedRow)
        row.focus()
        await pilot.pause()
        assert "[1, 514]" in str(row.border_title) and "lines 1–" in str(row.border_title)
        await pilot.press("end")
        assert row.scroll_offset.y == row.max_scroll_y > 0
        # Id, text, position, request, KV block, and what was sampled with its runners-up.
        assert last_line(app, "#row").startswith(
            " C p511  ,  id 28 · KV block 287 · → ·and 38 %   or ·he 12 %, ·the 9 %"[: size[0] - 6]
        )
        await pilot.press("pageup", "pageup")
        assert row.scroll_offset.y < row.max_scroll_y
        assert last_line(app, "#row").endswith(stored)
        await pilot.press("home")
        assert row.scroll_offset.y == 0 and last_line(app, "#row").startswith(" A p9  The  id 504")

    drive(traced("long", LONG_STEP), script, size=size)


def test_every_scale_of_a_mask_that_does_not_fit_explains_its_cells() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        mask.focus()
        titles, explained = [], []
        for _ in range(3):
            await pilot.press("z", "down", "down", "down")
            titles.append(str(mask.border_title))
            explained.append(last_line(app, "#mask"))
        assert titles == [
            "Mask 514 queries × 532 keys · arrows move",
            "Mask 514 queries × 532 keys, half-block cells · arrows move",
            "Mask 514 queries × 532 keys, overview: a cell is 43 × 6",
        ]
        assert explained[1] == "query C p4 ·with may not see A p9 The: another sequence"
        assert explained[2].startswith("43 queries × 6 keys: 0 of 258 pairs allowed")
        await pilot.press("right", "right")
        assert last_line(app, "#mask").startswith("43 queries × 6 keys: 172 of 258 pairs allowed")

    drive(traced("long", LONG_STEP), script)


def test_padding_of_a_real_rectangle_is_named() -> None:
    """Prompts of five, five and seven tokens: two of the rows have padding on their left."""

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.query_one(MaskGrid).focus()
        await pilot.press("z")
        assert last_line(app, "#mask") == "query A p4 ·is may see A p4 ·is: itself"
        await pilot.press(*["left"] * 5)
        assert "padding" in last_line(app, "#mask")
        await pilot.press("right", *["up"] * 5)
        assert "padding" in last_line(app, "#mask")

    drive(traced("static", 1), script)


def test_a_long_prompt_is_a_spike_in_its_neighbours_gaps() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r0")
        await pilot.press("escape", "enter")
        facts = text(app, "RequestFacts")
        assert "ITL p50 52 ms   largest 0.5 s" in facts
        assert "█" in facts and "2 blocks, 18 of 32 places filled" in facts
        assert "6  step 6     ·answer               4 %    0.5 s" in facts

    drive(traced("long"), script)


def test_a_request_that_gave_way_says_when_and_what_it_lost() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r3")
        await pilot.press("escape", "enter")
        assert "gave way" in text(app, "RequestFacts")
        await pilot.press("left_curly_bracket", "left_square_bracket")
        assert app.main.shown == 12 and "gave way" not in text(app, "RequestFacts")

    drive(traced("preempted"), script)


def test_blocks_of_a_common_prefix_are_shared() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "k", "left_square_bracket", "left_square_bracket")
        assert isinstance(app.screen, BlocksScreen) and app.main.shown == 13
        grid = text(app, "BlockGrid")
        assert "32 blocks shared: a prefix stored once" in grid and "C and D: blocks 256–287" in grid
        assert "C2" * 20 in grid

    drive(traced("long"), script)


def test_characters_in_pieces_are_shown_as_their_bytes() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.query_one(PackedRow).focus()
        await pilot.pause()
        assert "A prefill 21  ⟨E6 97⟩│⟨A5⟩│本│" in text(app, "#row")
        assert last_line(app, "#row").startswith(" A p0  ⟨E6 97⟩  id 23274 · bytes E6 97 · KV block 0")

    drive(traced("strange", 1), script)
