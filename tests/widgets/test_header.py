"""The header: mode, engine state, step and view are never dropped; the model's name goes first."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.header import header_line, loading_words
from engine.live.state import Failure
from engine.runner import Loading
from tests.widgets.stage import Stage

LOADING = Loading("fetching model", 41_000_000, 93_000_000, "bytes", "convert (about 15 s, once)")


def header(stage: Stage, cells: int, *args: object, **options: object) -> str:
    line = header_line(stage.frame(*args, **options), cells)  # type: ignore[arg-type]
    assert line_width(line) <= cells
    return plain(line)


def test_everything_at_160() -> None:
    text = header(Stage().tutorial().step(7), 160, "paused")
    assert [part.strip() for part in text.split("   ")] == [
        "cbtui",
        "SmolLM2-135M-Instruct · cpu float32 · 3 slots · budget 2,048",
        "● CONTINUOUS",
        "‖ paused",
        "≤ 8 steps/s",
        "step 7  live",
    ]


@pytest.mark.parametrize("cells", range(60, 161, 4))
@pytest.mark.parametrize("status", ["running", "paused", "idle"])
def test_four_things_are_always_there(cells: int, status: str) -> None:
    text = header(Stage().tutorial().step(7), cells, status)
    assert "CONTINUOUS" in text and status in text and "step 7" in text and text.endswith("live")


def test_the_models_name_goes_first() -> None:
    stage = Stage().tutorial().step(7)
    text = header(stage, 100, "paused")
    assert "SmolLM2" not in text and "cpu float32 · 3 slots · budget 2,048" in text
    assert "3 slots" not in header(stage, 60, "paused")


def test_a_switch_shows_until_it_has_acted() -> None:
    stage = Stage().tutorial().step(10)
    assert "continuous → static" in header(stage, 100, "running", pending_mode="static")
    stage.engine.set_mode("static")
    stage.step()
    for cells in (80, 160):
        assert "continuous → static when 3 have ended" in header(stage, cells, "running", draining=3)
    assert "contin. → static, 3 to end" in header(stage, 60, "running", draining=3)


def test_limits_that_change_at_the_next_step_show_both_values() -> None:
    stage = Stage().tutorial().step(3)
    wanted = msgspec.structs.replace(stage.engine.config, max_num_seqs=5)
    assert "3 → 5 slots" in header(stage, 160, "paused", pending_config=wanted)
    assert "3 → 5 slots" in header(stage, 80, "paused", pending_config=wanted)
    assert "3 slots" in header(stage, 160, "paused")


def test_a_long_switch_at_sixty_columns_is_shortened_not_dropped() -> None:
    stage = Stage("continuous-padded").tutorial().step(120)
    stage.engine.set_mode("static")
    text = header(stage.step(), 60, "paused", draining=3)
    assert "static" in text and "paused" in text and "step 121" in text and "live" in text


def test_looking_back_names_both_steps_and_the_mode_of_then() -> None:
    stage = Stage("static").tutorial().step(20)
    stage.engine.set_mode("continuous")
    stage.step(10)
    text = header(stage, 80, "running", step=12)
    assert "step 12 of 30" in text and "STATIC" in text and "live" not in text


def test_loading_names_stage_bytes_and_what_is_next() -> None:
    assert loading_words(LOADING) == "fetching model 41/93 MB → convert (about 15 s, once)"
    stage = Stage()
    assert "fetching model 41/93 MB → convert" in header(stage, 120, "loading", model=None, loading=LOADING)
    narrow = header(stage, 60, "loading", model=None, loading=LOADING)
    assert "41/93 MB" in narrow or "loading 44 %" in narrow


def test_a_failure_is_named() -> None:
    text = header(Stage(), 80, "failed", failure=Failure("fetch", "no network"))
    assert "✗ failed: fetch" in text


def test_exact_mode_is_said_beside_the_type() -> None:
    stage = Stage().tutorial().step(2)
    frame = stage.frame()
    assert frame.state.model is not None
    model = msgspec.structs.replace(frame.state.model, exact=True)
    frame = dataclasses.replace(frame, state=msgspec.structs.replace(frame.state, model=model))
    assert "cpu float32 exact · 3 slots" in plain(header_line(frame, 160))
