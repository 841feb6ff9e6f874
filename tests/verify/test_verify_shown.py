"""Verdicts on the screen: a sign beside every finished request, words where it differs."""

from __future__ import annotations

import re

import msgspec
import pytest

from cbtui.looks.pieces import plain
from cbtui.telling.alone import verdict_words
from cbtui.telling.narration import events_of
from cbtui.telling.request_story import StoryLines
from cbtui.widgets.finished import finished_at, finished_columns, finished_line, finished_title
from cbtui.widgets.slots import slot_columns, slot_line, slot_rows
from engine.stream.records import QuietRecord, Verification
from tests.widgets.stage import Stage

SAME = Verification("r0", "same", 6, drift=2e-5)
WRONG = Verification("r1", "differs", 50, 12, 13, 300, 301, 0.3125, 0.5)
NEAR = Verification("r1", "near_tie", 50, 12, 13, 300, 301, 0.0004, 1e-5)
HALF = Verification("r1", "half_precision", 50, 12, 13, 300, 301, 0.25, 0.1)
DRIFT = Verification("r1", "differs", 50, 12, 13, 300, 300, 0.0, 0.5)
NONE = Verification("r1", "unchecked", 50, error="no memory")


def staged(*verifications: Verification, steps: int = 50) -> Stage:
    stage = Stage().tutorial().step(steps)
    for one in verifications:
        stage.engine.note_verified(one)
    stage.quiet()
    return stage


def finished(stage: Stage, cells: int = 120) -> list[str]:
    frame = stage.frame()
    ids = finished_at(frame)
    columns = finished_columns(frame, ids, cells)
    return [plain(finished_line(frame, one, columns, cells)) for one in ids]


def test_each_finished_request_has_its_sign_and_the_title_counts_them() -> None:
    stage = staged(SAME, WRONG)
    lines = {line[2]: line for line in finished(stage)}
    assert lines["A"].startswith("  A  ✓ length 6/6")
    assert lines["B"].startswith("  B  ✗ length 50/50")
    assert "alone: differs at output 13, step 13, gap 0.31" in lines["B"]
    frame = stage.frame()
    assert finished_title(frame, finished_at(frame)) == "Finished 3 · alone ✓ 1 ✗ 1"


def test_without_checks_nothing_is_changed() -> None:
    frame = staged().frame()
    assert finished_title(frame, finished_at(frame)) == "Finished 3"
    assert finished(staged())[-1].startswith("  A  length 6/6")


def test_a_slot_that_is_not_taken_again_shows_the_sign() -> None:
    stage = Stage(slots=2)
    stage.submit(("one", 2), ("two", 2))
    stage.drain()
    stage.engine.note_verified(SAME)
    stage.engine.note_verified(WRONG)
    before = list(stage.records)
    stage.quiet().records[:0] = before  # what is told after the last step belongs to the same stretch
    frame = stage.frame()
    rows = slot_rows(frame)
    lines = [plain(slot_line(frame, row, slot_columns(frame, rows, 120), 120)) for row in rows]
    assert "✓ alone the same" in lines[0] and "✗ alone: differs at output 13" in lines[1]


@pytest.mark.parametrize(
    ("verification", "words"),
    [
        (SAME, "all 6 output tokens are what the model gives alone; log probabilities within 2e-05"),
        (WRONG, r"at output 13 \(step 13\) .+ was served, alone it is .+; logit gap 0.31$"),
        (NEAR, "a near tie"),
        (HALF, "nothing is claimed"),
        (DRIFT, "the token is the same, but its log probability is 0.5 away"),
        (NONE, "not checked: no memory"),
    ],
)
def test_the_verdict_in_words(verification: Verification, words: str) -> None:
    assert re.search(words, verdict_words(verification, staged().ledger))


def test_differences_are_events_and_sameness_is_none() -> None:
    stage = staged(SAME, WRONG)
    record = stage.records[-1]
    assert isinstance(record, QuietRecord)
    (event,) = events_of(record, stage.ledger, stage.frame().badges)
    assert plain(event.line).startswith("B alone: ✗ at output 13 (step 13)")


def test_all_about_a_request_says_what_came_of_it() -> None:
    story = StoryLines(staged(SAME, WRONG).frame(), "r1", 60)
    text = "\n".join(plain(line) for line in story.head)
    assert "Checked alone" in text and "logit gap 0.31" in text


def test_hostile_reasons_are_made_harmless() -> None:
    hostile = msgspec.structs.replace(NONE, error="\x1b[31m\x07boom")
    assert "\x1b" not in verdict_words(hostile, staged().ledger)
