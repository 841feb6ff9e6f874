"""The pool of KV blocks: owners, how full each block is, what is held dead and what is shared."""

from __future__ import annotations

import dataclasses

import msgspec

from cbtui.drawing.kv_blocks import PoolDrawing, owners_of, reusable_blocks
from cbtui.following.frame import Frame
from cbtui.looks.pieces import line_width, plain
from cbtui.telling.words import ranges
from tests.widgets.stage import Stage


def grid(frame: Frame, cells: int = 80) -> list[str]:
    drawing = PoolDrawing(frame, cells)
    lines = [drawing.line(y) for y in range(drawing.count)]
    assert all(line_width(line) <= cells for line in lines)
    return [plain(line).rstrip() for line in lines[len(drawing.head) :]]


def head(frame: Frame, cells: int = 80) -> list[str]:
    return [plain(line).rstrip() for line in PoolDrawing(frame, cells).head]


def small(**config: int) -> Stage:
    return Stage(num_blocks=24, block_size=4, **config)


def test_every_block_has_its_owners_letter_and_how_full_it_is() -> None:
    stage = small()
    stage.submit(("a b c d e f", 9), ("a b", 9))
    frame = stage.step(1).frame()
    # Six and two tokens in blocks of four, each request in its slot's own stretch of the pool.
    assert grid(frame, 60) == [" 0 A█A▌· · · · · · B▌· · · · · · · · · · ·", "20 · · · ·"]
    assert head(frame)[0] == "3 of 24 blocks in use (12 %) · 4 tokens each · 21 free after the step"
    assert head(frame)[1].split() == "A 2 blocks 6 of 8 places 0–1".split()


def test_a_held_slot_owns_its_blocks_until_the_wave_ends() -> None:
    stage = Stage("static", num_blocks=24, block_size=4)
    stage.submit(("a b", 2), ("a b", 9))
    frame = stage.step(4).frame()
    assert "A░" in grid(frame)[0]
    assert "held until the wave ends" in head(frame)[1]
    assert [owner.is_dead for owner in owners_of(frame)] == [True, False]


def test_looking_back_shows_the_owners_of_that_step() -> None:
    stage = small()
    stage.submit(("a b", 2), ("a b", 12))
    stage.step(9)
    assert {owner.request_id for owner in owners_of(stage.frame(step=1))} == {"r0", "r1"}
    assert {owner.request_id for owner in owners_of(stage.frame())} == {"r1"}


def test_a_shared_block_is_counted_once_and_says_how_many_hold_it() -> None:
    stage = Stage(num_blocks=24, block_size=4, prefix_caching=True)
    stage.submit(("a b c d e f g h i", 9))
    stage.step(2)
    stage.submit(("a b c d e f g h z", 9))
    frame = stage.step(2).frame()
    owners = owners_of(frame)
    assert owners[0].block_ids[:2] == owners[1].block_ids[:2]
    assert "2 blocks shared: a prefix stored once" in head(frame)[1]
    assert "A2A2" in grid(frame)[0]


def test_a_request_that_was_not_fed_keeps_its_blocks() -> None:
    stage = small()
    stage.submit(("a b c", 9), ("a b c", 9))
    frame = stage.step(2).frame()
    record = frame.record
    assert record is not None
    without = msgspec.structs.replace(record, segments=record.segments[:1])
    fed = dataclasses.replace(frame, record=without)
    assert [owner.request_id for owner in owners_of(fed)] == ["r0", "r1"]


def test_large_pools_are_made_line_by_line() -> None:
    stage = Stage(num_blocks=100_000)
    stage.submit(("a b c", 9))
    drawing = PoolDrawing(stage.step(1).frame(), 150)
    assert drawing.row == 50 and drawing.count == len(drawing.head) + 2000
    assert plain(drawing.line(drawing.count - 1)).startswith("99,950 · ")
    assert drawing.line(drawing.count) == ()


def test_block_ids_are_written_as_runs() -> None:
    assert ranges([0, 1, 2, 9, 12, 13]) == "0–2, 9, 12–13"
    assert ranges([]) == ""


def test_free_blocks_with_a_prefix_are_told_from_free_ones_at_any_step() -> None:
    stage = Stage(num_blocks=24, block_size=4, prefix_caching=True)
    stage.submit(("a b c d e f g h i", 2), ("x y", 30))
    stage.step(5)
    # The first has ended: its two full blocks can be used again, its third is free.
    frame = stage.frame()
    assert reusable_blocks(frame) == {0, 1}
    assert grid(frame, 60)[0].startswith(" 0 ◇ ◇ · ·")
    assert "2 of them with a prefix to be used again" in head(frame, 120)[0]
    stage.submit(("a b c d e z", 9))
    frame = stage.step(2).frame()
    assert reusable_blocks(frame) == {1} and grid(frame, 60)[0].split("◇")[0].count("C") == 1
    # Looking back, and a long while after the last change.
    assert reusable_blocks(stage.frame(step=4)) == {0, 1}
    assert reusable_blocks(stage.frame(step=1)) == set()


def test_a_stretch_says_anew_which_prefixes_are_left() -> None:
    stage = Stage(num_blocks=24, block_size=4, prefix_caching=True)
    stage.submit(("a b c d e f g h i", 2))
    stage.drain()
    stage.submit(("x y", 5))
    frame = stage.step(3).frame()
    assert reusable_blocks(frame) == {0, 1}


def test_who_shares_which_blocks_is_said() -> None:
    stage = Stage(num_blocks=24, block_size=4, prefix_caching=True)
    stage.submit(("a b c d e f g h i", 9))
    stage.step()
    stage.submit(("a b c d e f g h x", 9), ("a b c d y", 9))
    lines = head(stage.step().frame())
    assert "  A and B: block 1" in lines and "  A, B and C: block 0" in lines
