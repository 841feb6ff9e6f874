from __future__ import annotations

import msgspec
from drawn_steps import Fed, Scene, fed_sequences
from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.lookback_cards import cards
from cbtui.looks.pieces import line_width, plain
from engine.stream.records import Segment, StepRecord


def with_top(scene: Scene, record: StepRecord) -> StepRecord:
    """Every sampled token with two runners-up."""
    top = ((scene.token(b" that"), -0.8916), (scene.token(b"\n"), -1.8), (scene.token(b" is"), -4.0))
    segments = tuple(
        msgspec.structs.replace(s, top=top) if s.sampled is not None else s for s in record.segments
    )
    return msgspec.structs.replace(record, segments=segments)


def drawn(scene: Scene, record: StepRecord, width: int, height: int) -> list[str]:
    story = [scene.token(w.encode()) for w in "The| cat| sat| on| the| mat| and".split("|")]

    def seen(segment: Segment, count: int) -> tuple[int, ...]:
        return tuple(story[: segment.kv_len][-count:])

    lines = cards(with_top(scene, record), scene.badges, seen, scene.text, width, height)
    assert all(line_width(line) <= width for line in lines) and len(lines) <= height
    return [plain(line).rstrip() for line in lines]


def test_a_card_says_what_is_seen_and_what_may_come() -> None:
    scene = Scene()
    assert drawn(scene, scene.step(Fed(1, 6)), 40, 6) == [
        " A p6   7 keys, 6 cached",
        "The│·cat│·sat│·on│·the│·mat│·and",
        "",
        "→ ·that  41 %  ██████████▎",
        "  ⏎      17 %  ████▏",
        "  ·is     2 %  ▌",
    ]


def test_cards_stand_side_by_side_and_in_rows_as_room_allows() -> None:
    scene = Scene()
    record = scene.step(Fed(1, 6), Fed(1, 6), Fed(1, 6))
    assert drawn(scene, record, 70, 6)[0].split() == [
        "A",
        "p6",
        "7",
        "keys",
        "B",
        "p6",
        "7",
        "keys",
        "C",
        "p6",
        "7",
        "keys",
    ]
    rows = [line for line in drawn(scene, record, 45, 9) if " keys" in line]
    assert [line.split()[0] for line in rows] == ["A", "C"]
    assert drawn(scene, record, 45, 5) == []
    assert drawn(scene, record, 12, 9) == []


def test_a_step_that_sampled_nothing_has_no_cards() -> None:
    scene = Scene()
    assert drawn(scene, scene.step(Fed(8, left=4)), 60, 9) == []


@given(fed_sequences(), st.integers(1, 120), st.integers(0, 24))
def test_cards_fit_any_room(fed: tuple[Fed, ...], width: int, height: int) -> None:
    scene = Scene()
    drawn(scene, scene.step(*fed), width, height)
