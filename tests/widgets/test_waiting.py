"""The waiting panel: every reason in words, and what does not fit counted."""

from __future__ import annotations

import pytest

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.waiting import reason, waiting_lines, waiting_rows
from engine.live.state import Arriving
from engine.stream.records import WaitingRecord
from tests.widgets.stage import Stage


def lines(stage: Stage, cells: int = 112, at_most: int = 9, **frame_options: object) -> list[str]:
    frame = stage.frame(**frame_options)  # type: ignore[arg-type]
    rows, total = waiting_rows(frame, at_most)
    return [plain(line) for line in waiting_lines(frame, rows, total, cells)]


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
        (WaitingRecord("r4", "wave", idle_slots=2), "wave not over, 2 slots idle · 7 steps"),
        (WaitingRecord("r4", "wave", idle_slots=1), "wave not over, 1 slot idle · 7 steps"),
        (WaitingRecord("r4", "draining"), "draining before static · 7 steps"),
        (WaitingRecord("r5", "behind", blocked_by="r4"), "behind E, which does not fit · 7 steps"),
        (WaitingRecord("r4", "loading"), "model loading"),
        (WaitingRecord("r4", "paused"), "paused"),
        (WaitingRecord("r4", "next_step"), "takes effect at next step"),
        (WaitingRecord("r4", "something_new"), "something new · 7 steps"),
        (
            WaitingRecord("r4", "kv_blocks", preempted=True),
            "preempted: KV blocks taken back · not enough free KV blocks · 7 steps",
        ),
    ],
)
def test_reasons(record: WaitingRecord, words: str) -> None:
    assert reason(Stage().tutorial().step(7).frame(), record) == words


def test_more_than_fit_are_counted() -> None:
    stage = Stage()
    stage.submit(*[(f"prompt {n}", 5) for n in range(440)])
    assert lines(stage.step(), at_most=3)[-1] == " … and 434 more"


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
    frame = stage.step().frame(selected="r1")
    rows, total = waiting_rows(frame, 5)
    for line in waiting_lines(frame, rows, total, cells):
        assert line_width(line) <= cells and "\x1b" not in plain(line)
