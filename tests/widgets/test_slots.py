"""The slots panel: what a line says in every state a slot can be in."""

from __future__ import annotations

import pytest

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.slots import slot_columns, slot_line, slot_rows, slots_title
from engine.config import EngineConfig
from tests.widgets.stage import Stage

NASTY = "日本 😀 e\u0301 [bold]x[/] \x1b[2J\u202e\nend"


def lines(stage: Stage, cells: int = 112, **frame_options: object) -> list[str]:
    frame = stage.frame(**frame_options)  # type: ignore[arg-type]
    rows = slot_rows(frame)
    columns = slot_columns(frame, rows, cells)
    return [plain(slot_line(frame, row, columns, cells)) for row in rows]


def test_the_tutorials_step_seven() -> None:
    zero, one, two = lines(Stage().tutorial().step(7))
    assert zero.startswith(" 0  D  prefill 10") and "1/30  Once upon a time in a land far away, " in zero
    assert one.startswith(" 1  B  decode") and " 7/50  " in one
    assert two.startswith(" 2  C  decode") and " 7/300  " in two


def test_an_empty_engine_has_idle_slots_and_says_what_it_will_show() -> None:
    zero, one, two = lines(Stage())
    assert "idle" in zero and "A slot runs one request at a time" in zero
    assert one.split() == ["1", "idle"] and two.split() == ["2", "idle"]


def test_a_request_that_just_finished_says_so_and_frees_its_slot() -> None:
    zero = lines(Stage().tutorial().step(6))[0]
    assert "finished (length)" in zero and "6/6" in zero and "slot free" in zero


def test_a_narrow_line_keeps_the_finish_reason() -> None:
    zero = lines(Stage().tutorial().step(6), 78)[0]
    assert "finished" in zero and "length, slot free" in zero


def test_static_batching_holds_a_finished_row() -> None:
    stage = Stage("static").tutorial().step(6)
    assert "slot held until the wave ends" in lines(stage)[0]
    zero, one, _ = lines(stage.step(44))
    assert "dead" in zero and "░" in zero and "6/6" in zero
    assert "slot held 44 steps" in zero and "barrier" not in zero
    assert "finished (length)" in one and "slot held until the wave ends" in one


def test_at_the_barrier_every_slot_is_free() -> None:
    assert all("slot free" in line for line in lines(Stage("static").tutorial().step(300)))


def test_a_cancel_shows_before_the_next_step() -> None:
    stage = Stage().tutorial().step(10)
    stage.engine.abort_request("r1")
    stage.quiet()
    assert "cancelled" in lines(stage)[1] and "slot free" in lines(stage)[1]


def test_looking_back_shows_the_slot_as_it_was() -> None:
    stage = Stage().tutorial().step(40)
    assert "prefill 10" in lines(stage, step=7)[0]
    assert "finished" not in lines(stage, step=5)[0]


def test_a_prompt_over_the_budget_shows_how_much_is_fed() -> None:
    stage = Stage(slots=1, max_num_batched_tokens=64)
    stage.submit(("a long prompt", 4), tokens=100)
    assert "prefill 64/100" in lines(stage.step())[0]
    assert "prefill 100/100" in lines(stage.step())[0]


def test_slots_above_a_lowered_limit_close_when_they_end() -> None:
    stage = Stage().tutorial().step(5)
    stage.engine.configure(EngineConfig(max_num_seqs=2))
    assert "slot closes when it ends" in lines(stage.step())[2]


def test_the_newest_end_of_the_text_is_always_in_view() -> None:
    stage = Stage().tutorial().step(60)
    text = stage.ledger.decode(stage.ledger["r2"].outputs_at(60))
    assert lines(stage)[2].endswith(text[-30:])


@pytest.mark.parametrize("cells", [40, 58, 66, 78, 96, 112, 158])
def test_no_line_is_wider_than_the_panel(cells: int) -> None:
    for mode in ("continuous", "static"):
        stage = Stage(mode)
        stage.submit((NASTY, 6), (NASTY * 9, 50), ("[", 30), ("\x1b]0;x\x07", 9))
        for token in range(1000):
            stage.token_text[token] = ("日😀e\u0301[\x1b\n"[token % 7]).encode()
        for _ in range(12):
            frame = stage.step().frame(selected="r1")
            rows = slot_rows(frame)
            columns = slot_columns(frame, rows, cells)
            for row in rows:
                line = slot_line(frame, row, columns, cells)
                assert line_width(line) <= cells
                assert not any(c in plain(line) for c in "\x1b\n\u202e\x07")


def test_a_character_in_pieces_waits_for_its_last_byte() -> None:
    stage = Stage(slots=1)
    stage.submit(("say", 3))
    for token in range(1000):
        stage.token_text[token] = "😀".encode()[:2]
    assert "�" not in lines(stage.step())[0]


def test_titles() -> None:
    stage = Stage().tutorial().step(7)
    frame = stage.frame()
    rows = slot_rows(frame)
    assert slots_title(frame, rows, 0, 3) == "Slots 3/3"
    assert slots_title(frame, rows, 1, 2) == "Slots 1–2 of 3 · 3 busy"
    frame = stage.frame(pending_config=EngineConfig(max_num_seqs=4))
    assert slots_title(frame, rows, 0, 3) == "Slots 3/3 → 4 at the next step"
    frame = stage.drain().frame()
    assert slots_title(frame, slot_rows(frame), 0, 3) == "Slots 0/3"


def test_the_selected_line_is_marked_without_colour() -> None:
    assert lines(Stage().tutorial().step(7), selected="r1")[1].startswith("▸1")
