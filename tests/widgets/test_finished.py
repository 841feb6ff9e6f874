"""The finished panel: newest first, how each ended and went, and its text."""

from __future__ import annotations

import pytest

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.finished import course, ending, finished_at, finished_columns, finished_line
from tests.widgets.stage import Stage


def lines(stage: Stage, cells: int = 120, **frame_options: object) -> list[str]:
    frame = stage.frame(**frame_options)  # type: ignore[arg-type]
    ids = finished_at(frame)
    columns = finished_columns(frame, ids, cells)
    return [plain(finished_line(frame, one, columns, cells)) for one in ids]


def test_the_first_to_finish() -> None:
    (only,) = lines(Stage().tutorial().step(7))
    assert only.startswith("  A  length 6/6  waited 0, ran 6 steps  ")
    assert "France is " in only


def test_newest_first_with_the_steps_waited() -> None:
    stage = Stage().tutorial().drain()
    assert [line[2] for line in lines(stage)] == list("CEFBDA")
    assert course(stage.ledger["r3"], 40) == "waited 6, ran 30 steps"


def test_static_tells_how_long_a_finished_row_was_held() -> None:
    stage = Stage("static").tutorial().drain()
    assert course(stage.ledger["r0"], 300) == "waited 0, ran 6 steps, held 294"
    assert course(stage.ledger["r0"], 10) == "waited 0, ran 6 steps, held 4"
    assert course(stage.ledger["r0"], 6) == "waited 0, ran 6 steps"


def test_while_preempted_a_request_waits_and_does_not_run() -> None:
    stage = Stage(slots=2, num_blocks=4, block_size=4, max_model_len=16)
    stage.submit(("one", 12), ("two", 12))
    stage.drain()
    (story,) = [one for one in stage.ledger.stories.values() if one.num_preemptions]
    waited, ran = (int(part.split()[1]) for part in course(story, 100).split(", ")[:2])
    assert waited > 0 and ran == story.steps_fed and waited + ran == story.finish_step


def test_ends_other_than_good_ones() -> None:
    stage = Stage(slots=1, max_model_len=20)
    stage.submit(("runs", 9), ("waits", 9))
    stage.submit(("too long", 9), tokens=30)
    stage.step(3)
    stage.engine.abort_request("r0")
    stage.engine.abort_request("r1")
    stage.quiet()
    assert ending(stage.ledger["r0"]) == "cancelled 3/9"
    assert course(stage.ledger["r1"], 3) == "never ran"
    refused = next(line for line in lines(stage) if " C " in line)
    assert "refused 0/9" in refused and "the prompt has 30 tokens" in refused


def test_looking_back_hides_later_ends() -> None:
    assert len(lines(Stage().tutorial().step(60), step=36)) == 2


def test_a_narrow_line_keeps_ending_and_text() -> None:
    line = lines(Stage().tutorial().step(7), 46)[0]
    assert line.startswith("  A  length 6/6  ran 6 steps  ") and len(line) > 40


@pytest.mark.parametrize("cells", [12, 30, 46, 78, 120])
def test_no_line_is_wider_than_the_panel(cells: int) -> None:
    stage = Stage(slots=2)
    stage.submit(("日本 [b] \x1b[0m" * 5, 3), ("ok", 2))
    frame = stage.drain().frame()
    ids = finished_at(frame)
    columns = finished_columns(frame, ids, cells)
    for one in ids:
        line = finished_line(frame, one, columns, cells)
        assert line_width(line) <= cells and "\x1b" not in plain(line)
