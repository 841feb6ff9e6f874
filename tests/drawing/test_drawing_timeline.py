from __future__ import annotations

from collections import Counter

from drawn_steps import Fed, Scene
from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.slot_history import IDLE, SlotHistory, State, scale_for
from cbtui.drawing.timeline import (
    TimeAxis,
    arrange,
    axis_line,
    band_line,
    gutter_width,
    slot_line,
    timeline_lines,
)
from cbtui.looks.pieces import line_width, plain
from engine.stream.records import StepRecord

DEAD = Fed(1, 9, "dead")
DECODE = Fed(1, 9)


def small_run(scene: Scene) -> list[StepRecord]:
    """A ends after 3 steps and is held until B ends; then C enters slot 0 in continuous mode."""
    fed = [(Fed(5), Fed(5)), (DECODE, DECODE), (DECODE, DECODE), (DEAD, DECODE), (DEAD, DECODE)]
    records = [
        scene.step(*rows, step=n + 1, mode="static", layout="padded", barrier=n == 4, slots=3)
        for n, rows in enumerate(fed)
    ]
    records.append(scene.step(Fed(4), step=6, names="C", slots=3))
    records.append(scene.step(DECODE, step=7, names="C", slots=3))
    return records


def drawn(scene: Scene, records: list[StepRecord], width: int, steps: int = 0) -> list[str]:
    """A finished run in plain text, band, slots and axis, on the scale of a run of at least so many steps."""
    history = SlotHistory(records)
    gutter = gutter_width(history.num_slots)
    scale = scale_for(max(steps, history.num_steps), width - gutter)
    axis = TimeAxis(history.first_step, scale, history.last_step)
    lines = [band_line(history, axis, gutter, width)]
    lines += [slot_line(history, scene.badges, slot, axis, gutter) for slot in range(history.num_slots)]
    lines.append(axis_line(history, axis, gutter, width, has_marks=False))
    return [plain(line) for line in lines]


def test_one_coding_for_every_slot() -> None:
    scene = Scene()
    records = small_run(scene)
    lines = drawn(scene, records, 60)
    assert lines[1:4] == ["0 A▄▄░░C▄", "1 B▄▄▄▄··", "2 ·······"]


def test_the_band_marks_barriers_and_mode_changes_above_their_columns() -> None:
    scene = Scene()
    records = [scene.step(DECODE, DECODE, step=n, mode="static", barrier=n == 20) for n in range(1, 21)]
    records += [scene.step(DECODE, step=n, slots=2) for n in range(21, 31)]
    lines = drawn(scene, records, 60)
    assert lines[0] == "  static      barrier┤│continuous"
    assert lines[0].index("┤") - 2 == 20 - 1 and lines[0].index("│") - 2 == 21 - 1


def test_step_numbers_stand_under_their_columns() -> None:
    scene = Scene()
    records = [scene.step(DECODE, step=n) for n in range(11, 60)]
    axis = drawn(scene, records, 60)[-1]
    for number in (11, 20, 30, 40, 50, 59):
        assert axis[2 + number - 11 :].startswith(str(number))


def test_two_runs_share_a_scale() -> None:
    scene = Scene()
    short = [scene.step(DECODE, step=n) for n in range(1, 31)]
    assert len(drawn(scene, short, 22)[1]) == 2 + 15
    assert len(drawn(scene, short, 22, steps=60)[1]) == 2 + 8


def test_looking_back_leaves_the_rest_blank() -> None:
    scene = Scene()
    history = SlotHistory(small_run(scene))
    line = slot_line(history, scene.badges, 0, TimeAxis(1, 2, 5), 2)
    assert plain(line) == "0 A▄░"


def test_prefill_wins_a_column_and_colours_follow_the_request() -> None:
    scene = Scene()
    history = SlotHistory(small_run(scene))
    line = slot_line(history, scene.badges, 0, TimeAxis(1, 8, 7), 2)
    assert line[-1] == ("C", f"badge:{scene.badges['r2'].colour}")


def test_slots_that_do_not_fit_scroll_and_headings_stay() -> None:
    scene = Scene()
    history = SlotHistory([scene.step(*(Fed(3) for _ in range(64)), step=1)])
    lines = timeline_lines(history, scene.badges, TimeAxis(1, 1, 1), 80, 6, first_slot=40)
    assert [plain(line).split()[0] for line in lines[:-1]] == ["40", "41", "42", "43", "44"]
    assert arrange(6, 64, has_marks=False).slots == 5
    assert arrange(6, 64, has_marks=True).slots == 4


@given(st.integers(1, 200_000), st.integers(1, 200))
def test_the_scale_is_the_smallest_power_of_two_that_fits(steps: int, columns: int) -> None:
    scale = scale_for(steps, columns)
    assert scale & (scale - 1) == 0
    assert -(-steps // scale) <= columns
    assert scale == 1 or -(-steps // (scale // 2)) > columns


@given(
    st.lists(st.lists(st.sampled_from("pdx."), min_size=3, max_size=3), min_size=1, max_size=40),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(0, 40),
)
def test_folding_steps_one_by_one_equals_counting_them(steps: list[list[str]], scale: int, back: int) -> None:
    scene = Scene()
    kinds = {"p": Fed(2), "d": DECODE, "x": DEAD}
    history, seen = SlotHistory(), []
    for number, row in enumerate(steps, 1):
        owners = [slot for slot, kind in enumerate(row) if kind != "."] or [0]
        record = scene.step(
            *(kinds.get(row[slot], DECODE) for slot in owners),
            names="".join("ABC"[slot] for slot in owners),
            step=number,
            slots=3,
        )
        # The scene fills slots from 0 on.
        seen.append(dict(enumerate(record.segments)))
        history.apply(record)
        history.columns(0, scale, number)  # asked at every step, as a screen does
    last = max(1, len(steps) - back)
    for slot in range(3):
        states = [
            State(found[slot].kind, found[slot].request_id) if slot in found else IDLE
            for found in seen[:last]
        ]
        for column, state in enumerate(history.columns(slot, scale, last)):
            part = states[column * scale : (column + 1) * scale]
            prefills = [one for one in part if one.kind == "prefill"]
            counts = Counter(part)
            if prefills:
                assert state == prefills[-1]
            else:
                assert counts[state] == max(counts.values())
        assert len(history.columns(slot, scale, last)) == -(-last // scale)


@given(st.integers(1, 12), st.integers(1, 30), st.integers(20, 100), st.integers(1, 10))
def test_a_panel_of_any_size_is_filled_and_not_overfilled(
    slots: int, steps: int, width: int, height: int
) -> None:
    scene = Scene()
    records = [scene.step(DECODE, step=n, slots=slots, barrier=n % 4 == 0) for n in range(1, steps + 1)]
    history = SlotHistory(records)
    scale = scale_for(steps, width - 3)
    lines = timeline_lines(history, scene.badges, TimeAxis(1, scale, steps), width, height)
    assert len(lines) <= height and all(line_width(line) <= width for line in lines)
    drawn = arrange(height, slots, has_marks=len(history.marks) > 1)
    assert drawn.slots >= 1 and drawn.slots + drawn.has_band + drawn.has_axis <= height


def test_a_hundred_thousand_steps_are_kept_as_runs() -> None:
    scene = Scene()
    one = scene.step(DECODE, DECODE, slots=3)
    history = SlotHistory()
    for _ in range(100_000):
        history.apply(one)
    assert history.num_slots == 3
    assert sum(1 for _ in history.states(0, 1, 100_000)) == 1
