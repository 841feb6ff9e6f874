from __future__ import annotations

import pytest
from drawn_steps import STEP_1, STEP_7, WINDOWS, Fed, Scene, fed_sequences
from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.mask import MaskDrawing, folded
from cbtui.drawing.mask_spots import Area, owner_of_query
from cbtui.drawing.mask_words import allowed_pairs, is_allowed, legend
from cbtui.drawing.mask_zoom import Zoom, drawing_at
from cbtui.looks.pieces import line_width, plain
from engine.step.mask import query_runs
from engine.stream.records import Segment, StepRecord


def look(segment: Segment) -> str:
    return "…so cold that it's hard"


def text(drawing: MaskDrawing, width: int, height: int) -> str:
    lines = [drawing.heading(0, width)]
    lines += [drawing.line(y, 0, width) for y in range(min(height - 1, drawing.count))]
    return "\n".join(plain(line).rstrip() for line in lines)


def drawn(record: StepRecord, scene: Scene, width: int = 75, height: int = 14) -> str:
    return text(folded(record, scene.badges, look, width, height), width, height)


def test_prompts_packed_together_are_blocks_on_the_diagonal() -> None:
    scene = Scene()
    record = scene.step(*STEP_1)
    drawing = folded(record, scene.badges, look, 75, 20)
    assert drawing.title == "Mask 17 queries × 17 keys"
    assert text(drawing, 75, 20) == "\n".join(
        (
            "      A A A A A  B B B B B  C C C C C C C",
            "A p0  ██· · · ·  · · · · ·  · · · · · · ·",
            "A p1  ████· · ·  · · · · ·  · · · · · · ·",
            "A p2  ██████· ·  · · · · ·  · · · · · · ·",
            "A p3  ████████·  · · · · ·  · · · · · · ·",
            "A p4  ██████████ · · · · ·  · · · · · · ·",
            "B p0  · · · · ·  ██· · · ·  · · · · · · ·",
            "B p1  · · · · ·  ████· · ·  · · · · · · ·",
            "B p2  · · · · ·  ██████· ·  · · · · · · ·",
            "B p3  · · · · ·  ████████·  · · · · · · ·",
            "B p4  · · · · ·  ██████████ · · · · · · ·",
            "C p0  · · · · ·  · · · · ·  ██· · · · · ·",
            "C p1  · · · · ·  · · · · ·  ████· · · · ·",
            "C p2  · · · · ·  · · · · ·  ██████· · · ·",
            "C p3  · · · · ·  · · · · ·  ████████· · ·",
            "C p4  · · · · ·  · · · · ·  ██████████· ·",
            "C p5  · · · · ·  · · · · ·  ████████████·",
            "C p6  · · · · ·  · · · · ·  ██████████████",
        )
    )


def test_the_first_mixed_step_folds_cached_keys_to_labelled_bars() -> None:
    scene = Scene()
    record = scene.step(*STEP_7, names="DBC")
    drawing = folded(record, scene.badges, look, 75, 14)
    assert drawing.title == "Mask 12 queries × 34 keys, folded"
    lines = text(drawing, 75, 14).splitlines()
    assert lines[0] == "       D D D D D D D D D D  B▒×10 B  C▒×12 C"
    assert lines[1] == "D p0   ██· · · · · · · · ·  · · · ·  · · · ·"
    assert lines[10] == "D p9   ████████████████████ · · · ·  · · · ·"
    assert lines[11] == "B p10  · · · · · · · · · ·  ▒▒▒▒▒▒██ · · · ·   …so cold that it's hard"
    assert lines[12] == "C p12  · · · · · · · · · ·  · · · ·  ▒▒▒▒▒▒██  …so cold that it's hard"


def test_a_step_that_does_not_fit_folds_its_longest_prefill_first() -> None:
    scene = Scene()
    assert drawn(scene.step(Fed(4), Fed(36)), scene, height=14).splitlines()[5:] == [
        "B p0   ···· █···································",
        "B p1   ···· ██··································",
        "B p2   ···· ███·································",
        "B p3   ···· ████································",
        "  ⋮ 28 rows",
        "B p32  ···· █████████████████████████████████···",
        "B p33  ···· ██████████████████████████████████··",
        "B p34  ···· ███████████████████████████████████·",
        "B p35  ···· ████████████████████████████████████",
    ]


def test_decodes_show_bars_in_proportion_to_what_is_cached() -> None:
    scene = Scene()
    lines = drawn(scene.step(Fed(1, 20), Fed(1, 60)), scene).splitlines()
    bars = [line.count("▒") for line in lines[1:]]
    assert 2.7 < bars[1] / bars[0] < 3.3
    assert lines[1].endswith("…so cold that it's hard") and lines[2].endswith("…so cold that it's hard")
    assert lines[0].split() == ["A▒×20", "A", "B▒×60", "B"]


def test_a_chunk_of_a_prompt_starts_after_its_cached_part() -> None:
    scene = Scene()
    lines = drawn(scene.step(Fed(1, 9), Fed(6, 62, left=12)), scene).splitlines()
    assert lines[0].split()[2:4] == ["B▒×62", "B"]
    assert lines[2].startswith("B p62  ") and lines[2].endswith("▒▒▒▒▒▒██· · · · ·")
    assert "▒▒▒▒▒▒████████████" in lines[7]


def test_a_padded_wave_is_one_small_grid_a_row() -> None:
    scene = Scene()
    record = scene.step(Fed(3), Fed(1), layout="padded", mode="static")
    assert drawn(record, scene).splitlines() == [
        "      A A A         ╳ ╳ B",
        "A p0  ██· ·   ╳     ◆ ╳ ╳",
        "A p1  ████·   ╳     ◆ ╳ ╳",
        "A p2  ██████  B p0  ╳ ╳ ██",
    ]
    assert plain(legend(record, 75)) == "█ new   · blocked   ╳ padding   ◆ padding's own key"


def test_padded_decodes_stand_on_one_key_axis_with_dead_rows_and_padding() -> None:
    scene = Scene()
    fed = (Fed(1, 10, "dead"), Fed(1, 53), Fed(1, 65))
    record = scene.step(*fed, layout="padded", mode="static")
    lines = drawn(record, scene).splitlines()
    assert lines[0].strip() == "66 keys a row, as long as the longest"
    assert "╳░" in lines[1] and "█" not in lines[1] and "dead: ended, still fed" in lines[1]
    assert "╳▒" in lines[2] and "▒█" in lines[2]
    assert "╳" not in lines[3] and "66 keys …" in lines[3]
    ends = {len(line.split("  dead")[0].split("  5")[0].split("  6")[0].rstrip()) for line in lines[1:]}
    assert len(ends) == 1


def test_a_padded_mixed_step_folds_bars_but_never_padding_queries_own_key() -> None:
    scene = Scene()
    record = scene.step(*STEP_7, names="DBC", layout="padded", mode="continuous-padded")
    lines = drawn(record, scene, height=14).splitlines()
    assert len(lines) == 11
    assert "◆" in lines[1] and "D p0" in lines[1]
    assert "▒" in lines[10] and "B p10" in lines[10] and "C p12" in lines[10]


def test_many_sequences_stand_on_a_diagonal_of_their_own_keys() -> None:
    scene = Scene()
    record = scene.step(*(Fed(1, 12 + i % 7) for i in range(64)))
    drawing = folded(record, scene.badges, look, 75, 14)
    assert drawing.count == 64
    assert plain(drawing.heading(0, 75)).strip() == "own keys, on the diagonal; all others' folded"
    lines = [plain(drawing.line(y, 0, 75)).split("█") for y in range(64)]
    starts = [line[0].index("▒") for line in lines]
    assert starts[0] < starts[20] < starts[40] < starts[63] and sorted(starts) == starts
    assert lines[0][0] == "A p12   ▒▒▒▒▒▒▒▒▒▒▒▒" and "·" in lines[0][1]
    assert lines[30][0].split("▒")[0].strip() and lines[30][1].count("·")
    assert "·" not in lines[63][1].split("keys")[0]


def test_many_prompts_keep_the_diagonal_with_cached_and_new_apart() -> None:
    scene = Scene()
    record = scene.step(*(Fed(20 + i, i) for i in range(12)))
    drawing = folded(record, scene.badges, look, 90, 14)
    assert plain(drawing.heading(0, 90)).split()[:3] == ["AAA", "BBBB", "CCCC"]
    lines = [plain(drawing.line(y, 0, 90))[7:] for y in range(drawing.count)]
    last_rows = [line for line in lines if "█" in line][1::2]
    assert [line.split("  ")[0].strip("· ") for line in last_rows] == ["███", *["▒███"] * 11]
    assert [line.index("█") for line in last_rows] == sorted(line.index("█") for line in last_rows)


@given(
    st.integers(2, 70),
    st.sampled_from((1, 3, 40)),
    st.sampled_from((0, 1, 60)),
    WINDOWS,
    st.integers(24, 100),
)
def test_any_number_of_sequences_shows_the_block_diagonal(
    count: int, tokens: int, cached: int, window: int | None, width: int
) -> None:
    scene = Scene()
    record = scene.step(*(Fed(tokens, cached) for _ in range(count)))
    drawing = folded(record, scene.badges, look, width, 12, window)
    starts = []
    for y in range(drawing.count):
        areas = dict.fromkeys(drawing.area(y, x) for x in range(drawing.columns))
        row = [area for area in areas if area is not None]
        if not row:
            continue
        allowed = [area for area in row if is_allowed(record, area, window)]
        owner = owner_of_query(record, 0, row[0].query)
        assert owner is not None and row[0].query == row[-1].query
        # Its own keys and nobody else's, in their order, with every other key somewhere before or behind.
        assert [area.key for area in row] == sorted(area.key for area in row)
        assert (row[0].key, row[-1].key_stop) == (0, record.num_keys)
        for area in allowed:
            assert owner.kv_start <= area.key < area.key_stop <= owner.kv_start + owner.kv_len
        cut = owner.kv_start + owner.num_cached
        assert all(area.key_stop <= cut or area.key >= cut for area in allowed)
        own = [x for x in range(drawing.columns) if drawing.area(y, x) in allowed]
        assert own
        starts.append(own[0])
    assert len(starts) >= count and starts[0] <= starts[-1]


def test_a_window_cuts_a_bar_in_two_and_its_edge_is_drawn_key_by_key() -> None:
    scene = Scene()
    drawing = folded(scene.step(Fed(4, 40), Fed(1, 60)), scene.badges, look, 75, 14, 6)
    lines = text(drawing, 75, 14).splitlines()
    assert lines[0].split() == "A·×35 A A A A▒×2 A A A A B·×55 B▒×5 B".split()
    assert lines[1:] == [
        "A p40  · · · ▒▒▒▒▒▒▒▒▒▒▒██· · ·  · · ·  · · ·",
        "A p41  · · · · ▒▒▒▒▒▒▒▒▒████· ·  · · ·  · · ·",
        "A p42  · · · · · ▒▒▒▒▒▒▒██████·  · · ·  · · ·",
        "A p43  · · · · · · ▒▒▒▒▒████████ · · ·  · · ·   …so cold that it's hard",
        "B p60  · · · · · ·  · · · · · ·  · · · ▒▒▒▒▒██  …so cold that it's hard",
    ]


def test_padded_decodes_show_what_is_outside_the_window() -> None:
    scene = Scene()
    record = scene.step(Fed(1, 20), Fed(1, 65), layout="padded", mode="static")
    lines = text(folded(record, scene.badges, look, 75, 14, 16), 75, 14).splitlines()
    assert [line.split("█")[0].count("▒") for line in lines[1:]] in ([8, 8], [9, 9])
    assert "╳ " in lines[1] and "╳" not in lines[2] and " · · · · · · " in lines[2]
    assert all("16 keys …" in line for line in lines[1:])


@given(fed_sequences(), st.sampled_from(("ragged", "padded")), WINDOWS, st.integers(20, 90), st.booleans())
def test_a_stretch_shows_whether_none_some_or_all_of_it_is_allowed(
    fed: tuple[Fed, ...], layout: str, window: int | None, width: int, is_flat: bool
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    drawing = folded(record, scene.badges, look, width, 4 if is_flat else 40, window)
    for y in range(drawing.count):
        line = plain(drawing.line(y, 0, 10_000))
        glyphs: dict[Area, str] = {}
        for x in range(drawing.columns):
            area = drawing.area(y, x)
            if area is not None:
                glyphs[area] = glyphs.get(area, "") + line[x]
        for area, drawn in glyphs.items():
            pairs = sum(allowed_pairs(segment, area, window) for segment in record.segments)
            shows = sum(glyph in "█▒░" for glyph in drawn)
            cells = area.key_stop - area.key
            if pairs in (0, cells):
                assert shows == (len(drawn) if pairs else 0)
            else:
                assert shows and (shows < len(drawn) or len(drawn) == 1)


def test_a_prompt_of_512_folds_rows_and_keys() -> None:
    scene = Scene()
    lines = drawn(scene.step(Fed(512)), scene).splitlines()
    assert lines[0] == "        A A A A █×504 A A A A"
    assert lines[5] == "  ⋮ 504 rows"
    assert lines[9] == "A p511  ██████████████████████"


@given(fed_sequences(), st.sampled_from(("ragged", "padded")), st.booleans(), WINDOWS)
def test_true_cells_equal_the_mask_cell_for_cell(
    fed: tuple[Fed, ...], layout: str, is_wide: bool, window: int | None
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    zoom, cell = (Zoom.WIDE, 2) if is_wide else (Zoom.NARROW, 1)
    drawing = drawing_at(zoom, record, scene.badges, look, 80, 20, window)
    is_stacked = layout == "padded" and record.shape[1] == 1
    assert drawing.count == (record.shape[0] if is_stacked else record.shape[1])
    gutter = 2 + max(len(f"A p{s.position + s.q_len - 1}") for s in record.segments)
    for run in query_runs(record.segments, record.shape, window):
        line = plain(drawing.line(run.row if is_stacked else run.column, 0, 10_000))
        if layout == "padded" and not is_stacked:
            line = line[run.row * (gutter + cell * record.num_keys + 2) :]
        line = line[gutter:]
        if layout == "ragged":  # one blank column between sequences
            starts = [s.kv_start for s in record.segments]
            at = {
                key: cell * key + sum(start <= key for start in starts[1:]) for key in range(record.num_keys)
            }
        else:
            at = {key: cell * key for key in range(record.num_keys)}
        for key in range(record.num_keys):
            assert line[at[key]] == expected(record, run.segment, key, run.start <= key < run.stop)


def expected(record: StepRecord, segment: int | None, key: int, allowed: bool) -> str:
    if segment is None:
        return "◆" if allowed else "╳"
    found = record.segments[segment]
    if not allowed:
        return "╳" if record.layout == "padded" and key < found.kv_start else "·"
    if found.kind == "dead":
        return "░"
    return "▒" if key < found.kv_start + found.num_cached else "█"


@given(
    fed_sequences(), st.sampled_from(("ragged", "padded")), st.integers(20, 90), st.integers(5, 20), WINDOWS
)
def test_folded_drawings_fit_any_size_and_show_every_sampled_query(
    fed: tuple[Fed, ...], layout: str, width: int, height: int, window: int | None
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    drawing = folded(record, scene.badges, look, width, height, window)
    lines = [drawing.line(y, 0, width) for y in range(drawing.count)]
    assert all(line_width(line) <= width for line in (*lines, drawing.heading(0, width)))
    whole = "\n".join(plain(drawing.line(y, 0, 10_000)) for y in range(drawing.count))
    for segment in record.segments:
        letter = scene.badges[segment.request_id].letter
        assert f"{letter} p{segment.position + segment.q_len - 1} " in whole


@given(fed_sequences(), st.integers(0, 60), st.integers(1, 40))
def test_a_window_is_a_cut_out_of_the_whole(fed: tuple[Fed, ...], first: int, width: int) -> None:
    scene = Scene()
    record = scene.step(*fed)
    drawing = drawing_at(Zoom.NARROW, record, scene.badges, look, 80, 20)
    gutter = 2 + max(len(f"A p{s.position + s.q_len - 1}") for s in record.segments)
    for y in range(drawing.count):
        whole = plain(drawing.line(y, 0, 10_000))
        assert (
            plain(drawing.line(y, first, gutter + width))
            == whole[:gutter] + whole[gutter:][first : first + width]
        )


@pytest.mark.parametrize("layout", ["ragged", "padded"])
def test_headings_name_the_owner_of_every_key(layout: str) -> None:
    scene = Scene()
    record = scene.step(Fed(3), Fed(1, 4), layout=layout)  # type: ignore[arg-type]
    drawing = drawing_at(Zoom.NARROW, record, scene.badges, look, 80, 20)
    heading = plain(drawing.heading(0, 200)).split()
    assert "".join(heading) == ("AAABBBBB" if layout == "ragged" else "╳╳╳AAA╳BBBBB")
