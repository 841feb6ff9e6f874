"""The waiting panel: every reason in words, and what does not fit counted."""

from __future__ import annotations

import pytest

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.waiting import QueueLines, reason, waiting_title
from engine.live.state import Arriving
from engine.stream.records import WaitingRecord
from tests.widgets.stage import Stage


def lines(stage: Stage, cells: int = 112, **frame_options: object) -> list[str]:
    queue = QueueLines(stage.frame(**frame_options), cells)  # type: ignore[arg-type]
    return [plain(queue.line(y)) for y in range(queue.count)]


def test_the_queue_at_the_tutorials_step_seven() -> None:
    first, second = lines(Stage().tutorial().step(7))
    assert first.startswith("  E  Quantum computing differs from") and "max 180" in first
    assert first.endswith("no free slot · 7 steps")
    assert second.startswith("  F  ") and " max 45" in second


def test_an_empty_queue_says_what_would_be_there() -> None:
    assert lines(Stage()) == [" Nobody waits; a prompt without a slot queues here"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (WaitingRecord("r4", "no_free_slot"), "no free slot · 7 steps"),
        (WaitingRecord("r4", "token_budget"), "over the step's token budget · 7 steps"),
        (WaitingRecord("r4", "kv_blocks"), "not enough free KV blocks · 7 steps"),
        (WaitingRecord("r4", "wave"), "wave not over · 7 steps"),
        (WaitingRecord("r4", "draining"), "static starts when those that run have ended · 7 steps"),
        (WaitingRecord("r5", "behind", blocked_by="r4"), "behind E, which does not fit · 7 steps"),
        (WaitingRecord("r4", "loading"), "model loading"),
        (WaitingRecord("r4", "paused"), "paused"),
        (WaitingRecord("r4", "next_step"), "enters at the next step"),
        (WaitingRecord("r4", "something_new"), "something new · 7 steps"),
        (
            WaitingRecord("r4", "kv_blocks", preempted=True),
            "preempted, not enough free KV blocks · 7 steps",
        ),
    ],
)
def test_reasons(record: WaitingRecord, words: str) -> None:
    assert reason(Stage().tutorial().step(7).frame(), record) == words


def test_a_wave_says_what_its_unused_slots_are() -> None:
    """A slot held by a request that has ended is not idle; one that no request ever had is empty."""
    full = Stage("static").tutorial().step(7)
    assert lines(full)[0].endswith("wave not over, 1 slot held · 7 steps")
    assert lines(full.step(60))[0].endswith("wave not over, 2 slots held · 67 steps")
    late = Stage("static", slots=4)
    late.submit(("one", 2), ("two", 9))
    late.step(1).submit(("three", 5))
    assert lines(late.step(1))[0].endswith("wave not over, 1 slot held, 2 empty · 1 step")
    assert lines(late, step=2)[0].endswith("wave not over, 2 slots empty · 1 step")


def test_draining_says_for_how_many() -> None:
    stage = Stage().tutorial().step(3)
    stage.engine.set_mode("static")
    stage.step(1)
    assert "static starts when 3 have ended" in lines(stage, draining=3)[0]
    assert "static starts when 1 has ended" in lines(stage, draining=1)[0]


def test_who_finds_no_slot_left_does_not_enter_next() -> None:
    waits = lines(Stage().tutorial().quiet(), status="paused")
    assert [line.rpartition("  ")[2] for line in waits] == ["paused"] * 3 + ["no free slot"] * 3


def test_those_beyond_the_recorded_ones_are_counted() -> None:
    stage = Stage()
    stage.submit(*[(f"prompt {n}", 5) for n in range(500)])
    found = lines(stage.step())
    assert len(found) == 65 and found[-1] == " … and 433 more behind them"


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ((3, 0, 3), "Waiting 3"),
        ((500, 0, 6), "Waiting 1–6 of 500"),
        ((500, 60, 6), "Waiting 61–66 of 500"),
        ((0, 0, 3), "Waiting 0"),
    ],
)
def test_the_title_says_which_are_in_view(place: tuple[int, int, int], title: str) -> None:
    assert waiting_title(*place) == title


def test_prompts_without_token_ids_stand_last_with_their_letter() -> None:
    arriving = (Arriving("r6", 6, "typed [while] loading", 64, "loading"),)
    last = lines(Stage().tutorial().step(7), arriving=arriving, arriving_count=1)[-1]
    assert last.startswith("  G  typed [while] loading") and last.endswith("model loading")


def test_looking_back_shows_the_queue_of_that_step() -> None:
    assert len(lines(Stage().tutorial().step(60), step=6)) == 3


@pytest.mark.parametrize("cells", [20, 40, 78, 112])
def test_no_line_is_wider_than_the_panel(cells: int) -> None:
    stage = Stage(slots=1)
    stage.submit(("x", 9), ("日本語のとても長い文章です 😀\x1b[2J [red]\n" * 4, 9), ("y", 100_000))
    queue = QueueLines(stage.step().frame(selected="r1"), cells)
    for y in range(queue.count):
        assert line_width(queue.line(y)) <= cells and "\x1b" not in plain(queue.line(y))
