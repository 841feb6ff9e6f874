"""Pictures of what only certain real steps have: a prompt of 512 tokens, one that shares its blocks, one that
gave way, texts of every kind, and a terminal without colour."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.link import Link
from engine.live.channels import History, Mailbox
from engine.live.load import LoadNow, LoadSpec
from engine.live.state import EngineState
from tests.app.replay import Feeder, traced_records
from tests.snapshots.test_snapshots import (
    LARGE,
    MEDIUM,
    SMALL,
    Picture,
    paused_mid_prefill,
    pressing,
    running,
    screen,
)

#: The step in which the prompt of 512 tokens goes in beside two decodes, in one piece.
LONG_STEP = 6


def traced(name: str) -> CbtuiApp:
    feeder = Feeder()
    feeder.play(traced_records(f"trace-{name}.jsonl"))
    return screen(feeder)


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_the_last_token_of_a_row_of_512(snap_compare: Picture, size: tuple[int, int]) -> None:
    app = screen(running("long", step=LONG_STEP))
    assert snap_compare(app, terminal_size=size, run_before=pressing("tab", "tab", "end"))


def test_half_block_cells(snap_compare: Picture) -> None:
    keys = ("z", "z", "tab", "tab", "tab", *["shift+down"] * 3, "down", *["right"] * 12)
    app = screen(running("long", step=LONG_STEP))
    assert snap_compare(app, terminal_size=LARGE, run_before=pressing(*keys))


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_an_overview_of_the_mask(snap_compare: Picture, size: tuple[int, int]) -> None:
    app = screen(running("long", step=LONG_STEP))
    keys = ("z", "z", "z") if size == LARGE else ("2", "z", "z", "z")
    assert snap_compare(app, terminal_size=size, run_before=pressing(*keys))


def test_true_cells_of_a_rectangle(snap_compare: Picture) -> None:
    keys = ("z", "tab", "tab", "tab", *["left"] * 5)
    app = screen(running("static", step=1))
    assert snap_compare(app, terminal_size=MEDIUM, run_before=pressing(*keys))


def test_a_request_whose_neighbour_was_long(snap_compare: Picture) -> None:
    assert snap_compare(traced("long"), terminal_size=MEDIUM, run_before=pressing("down", "enter"))


def test_a_request_that_gave_way(snap_compare: Picture) -> None:
    async def run(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, CbtuiApp)
        app.main._select("r3")
        await pilot.press("escape", "enter")
        await pilot.pause()

    assert snap_compare(traced("preempted"), terminal_size=LARGE, run_before=run)


def test_blocks_of_a_common_prefix(snap_compare: Picture) -> None:
    keys = ("k", "left_square_bracket", "left_square_bracket")
    assert snap_compare(traced("long"), terminal_size=LARGE, run_before=pressing(*keys))


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_texts_of_every_kind(snap_compare: Picture, size: tuple[int, int]) -> None:
    assert snap_compare(traced("strange"), terminal_size=size, run_before=pressing())


def test_a_copied_output(snap_compare: Picture) -> None:
    app = screen(paused_mid_prefill())
    assert snap_compare(app, terminal_size=MEDIUM, run_before=pressing("down", "down", "y"))


def test_without_colour(snap_compare: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = screen(running("static", step=23))
    assert snap_compare(app, terminal_size=LARGE, run_before=pressing())


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_a_queue_that_grows_under_load(snap_compare: Picture, size: tuple[int, int]) -> None:
    app = screen(running(step=20, load=LoadNow(LoadSpec(rate_per_s=4), 6)))
    assert snap_compare(app, terminal_size=size, run_before=pressing())


def test_the_oldest_step_that_is_kept(snap_compare: Picture) -> None:
    feeder = Feeder(Link(Mailbox(EngineState(version=1)), History(limit=20)))
    app = CbtuiApp(feeder.link)

    async def run(pilot: Pilot[None]) -> None:
        for record in traced_records("trace-static.jsonl"):
            feeder.play([record])
            app.main.look()
        await pilot.press("escape", "0")
        await pilot.pause()

    assert snap_compare(app, terminal_size=MEDIUM, run_before=run)
