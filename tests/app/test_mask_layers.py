"""The mask in the layers of a model that has several kinds of them."""

from __future__ import annotations

import msgspec
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from engine.runner import ModelFacts
from tests.app.replay import MODEL, Feeder, drive, traced_records


def fed(*windows: int | None, step: int = 20) -> Feeder:
    feeder = Feeder()
    model = msgspec.structs.replace(MODEL, facts=ModelFacts(layer_windows=windows))
    feeder.play(traced_records("trace-continuous.jsonl"), upto=step, model=model)
    return feeder


def text(app: CbtuiApp) -> str:
    return "\n".join(plain(line) for line in app.main.query_one(MaskGrid).visible_lines())


def test_w_shows_the_other_layers_and_comes_back() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        await pilot.press("escape")
        assert str(mask.border_title).endswith("folded · window 8: 2 of 3 layers · w the others")
        assert "·×" in text(app) and "8 keys of " in text(app)
        in_window = text(app)
        await pilot.press("w")
        assert str(mask.border_title).endswith("folded · no window: 1 of 3 layers · w the others")
        assert "·×" not in text(app) and "8 keys of" not in text(app)
        await pilot.press("w")
        assert text(app) == in_window

    drive(fed(8, 8, None), script)


def test_where_all_layers_have_the_window_there_is_nothing_to_switch() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        await pilot.press("escape")
        assert str(mask.border_title).endswith("folded · window 8")
        before = text(app)
        await pilot.press("w")
        assert text(app) == before

    drive(fed(8, 8), script)


def test_the_cursor_names_the_window_and_the_overview_shows_it() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        mask.focus()
        await pilot.press("z", "down", "down", *["right"] * 80, *["left"] * 9)
        assert "outside the window of 8" in text(app).splitlines()[-1]
        await pilot.press("w")
        assert "its own earlier token, cached" in text(app).splitlines()[-1]

    drive(fed(8, None), script)


def test_the_row_counts_the_keys_that_are_seen() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        lines = "\n".join(plain(line) for line in app.main.query_one(PackedRow).visible_lines())
        assert "keys, 8 in a window" in lines

    drive(fed(8, None), script)

    async def all_alike(app: CbtuiApp, pilot: Pilot[None]) -> None:
        lines = "\n".join(plain(line) for line in app.main.query_one(PackedRow).visible_lines())
        assert "looks at 8 of " in lines and "in a window" not in lines

    drive(fed(8), all_alike)
