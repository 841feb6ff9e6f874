"""The mask's scales, its cursor and its words."""

from __future__ import annotations

import pytest
from drawn_steps import STEP_7, WINDOWS, Fed, Scene, fed_sequences
from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.mask import folded
from cbtui.drawing.mask_dense import dense_cells
from cbtui.drawing.mask_overview import OverviewMask
from cbtui.drawing.mask_spots import Area, Drawing, anchor_of, area_of, moved
from cbtui.drawing.mask_words import Words, allowed_pairs, explain, layers_title, layers_words
from cbtui.drawing.mask_zoom import Zoom, drawing_at, ladder
from cbtui.looks.pieces import line_width, plain
from engine.step.mask import layer_kinds, query_runs
from engine.stream.records import Segment, StepRecord

LAYOUTS = st.sampled_from(("ragged", "padded"))


def look(segment: Segment) -> str:
    return ""


def words(scene: Scene) -> Words:
    return Words(scene.badges, 16, lambda request_id, position: b"x")


def said(record: StepRecord, scene: Scene, *cell: int) -> str:
    row, query, key = cell
    return plain(explain(record, Area(row, query, query + 1, key, key + 1), words(scene)))


def allowed(record: StepRecord, window: int | None = None) -> set[tuple[int, int, int]]:
    """Every allowed (row, query, key), padding's own apart."""
    return {
        (run.row, run.column, key)
        for run in query_runs(record.segments, record.shape, window)
        if run.segment is not None
        for key in range(run.start, run.stop)
    }


# -- words -----------------------------------------------------------------------------------------


def test_the_mixed_step_in_words() -> None:
    scene = Scene()
    record = scene.step(*STEP_7, names="DBC")
    assert (
        said(record, scene, 0, 5, 2)
        == "query D p5 x may see D p2 x: an earlier token of its own, new in this step"
    )
    assert said(record, scene, 0, 5, 7) == "query D p5 x may not see D p7 x: in its future"
    assert said(record, scene, 0, 5, 5) == "query D p5 x may see D p5 x: itself"
    assert said(record, scene, 0, 10, 24) == "query B p10 x may not see C p3 x: another sequence"
    assert said(record, scene, 0, 10, 10) == "query B p10 x may see B p0 x: its own earlier token, cached"


def test_outside_the_window_in_words() -> None:
    scene = Scene()
    record = scene.step(Fed(2, 40), Fed(1, 9))

    def in_window(*cell: int) -> str:
        row, query, key, stop = cell
        asked = Words(scene.badges, 16, lambda request_id, position: b"x", 32)
        return plain(explain(record, Area(row, query, query + 1, key, stop), asked))

    assert in_window(0, 0, 3, 4) == "query A p40 x may not see A p3 x: outside the window of 32"
    assert in_window(0, 0, 8, 9).startswith("query A p40 x may not see A p8 x: outside")
    assert in_window(0, 0, 9, 10) == "query A p40 x may see A p9 x: its own earlier token, cached"
    assert in_window(0, 0, 41, 42) == "query A p40 x may not see A p41 x: in its future"
    assert in_window(0, 1, 0, 9).endswith("A p0–p8: all outside the window of 32")
    assert in_window(0, 0, 0, 41).endswith(
        "may see 32 of 41 keys A p0–p40: the others are outside the window of 32"
    )
    assert in_window(0, 0, 0, 42).endswith("outside the window of 32 or in its future")
    assert in_window(0, 2, 0, 42).endswith("another sequence")
    assert in_window(0, 0, 30, 52) == "query A p40 x may not see these keys: 2 other sequences"


def test_kinds_of_layers_in_words() -> None:
    mixed = layer_kinds((32, 32, 32, None, 32, None))
    assert [layers_title(mixed, n) for n in (0, 1)] == [
        "window 32: 4 of 6 layers",
        "no window: 2 of 6 layers",
    ]
    assert layers_words(mixed, 0) == "layers 0–2, 4 of 6: a query sees the newest 32 keys, its own included"
    assert layers_words(mixed, 1) == "layers 3, 5 of 6: a query sees every key before it"
    assert [layers_title(layer_kinds(all_alike), 0) for all_alike in ((), (None,), (32, 32))] == [
        "", "", "window 32",
    ]  # fmt: skip


def test_a_cached_key_names_its_block() -> None:
    scene = Scene()
    record = scene.step(Fed(1, 40))
    segment = record.segments[0]
    record = type(record)(
        **{
            **{name: getattr(record, name) for name in record.__struct_fields__},
            "segments": (
                Segment(
                    **{
                        **{n: getattr(segment, n) for n in segment.__struct_fields__},
                        "block_ids": (12, 7, 3),
                    }
                ),
            ),
        }
    )
    assert said(record, scene, 0, 0, 17).endswith("its own earlier token, cached in KV block 7")
    bar = plain(explain(record, Area(0, 0, 1, 0, 40), words(scene)))
    assert bar == "query A p40 x may see A p0–p39: its own earlier tokens, cached in 3 KV blocks, 12 to 3"


def test_padding_is_named_on_either_axis() -> None:
    scene = Scene()
    record = scene.step(Fed(3), Fed(1), layout="padded", mode="static")
    assert said(record, scene, 1, 2, 1) == "query B p0 x may not see this key: padding"
    assert said(record, scene, 1, 0, 0).startswith("this query is padding: it sees padding's own first key")
    assert said(record, scene, 1, 0, 2) == "this query is padding: what it works out is thrown away"


def test_a_block_says_how_much_of_it_is_allowed() -> None:
    scene = Scene()
    record = scene.step(Fed(5), Fed(5))
    text = plain(explain(record, Area(0, 0, 10, 0, 10), words(scene)))
    assert text == "10 queries × 10 keys: 30 of 100 pairs allowed, A B"


@given(fed_sequences(), LAYOUTS, WINDOWS, st.data())
def test_pairs_are_counted_as_the_mask_has_them(
    fed: tuple[Fed, ...], layout: str, window: int | None, data: st.DataObject
) -> None:
    record = Scene().step(*fed, layout=layout)  # type: ignore[arg-type]
    rows, queries = record.shape
    row = data.draw(st.integers(0, rows - 1))
    first, stop = sorted(data.draw(st.tuples(st.integers(0, queries), st.integers(0, queries))))
    low, high = sorted(data.draw(st.tuples(st.integers(0, record.num_keys), st.integers(0, record.num_keys))))
    area = Area(row, first, stop, low, high)
    true = sum(r == row and first <= q < stop and low <= k < high for r, q, k in allowed(record, window))
    assert sum(allowed_pairs(segment, area, window) for segment in record.segments) == true


# -- scales ----------------------------------------------------------------------------------------


def test_half_blocks_put_two_queries_on_a_line() -> None:
    scene = Scene()
    drawing = dense_cells(scene.step(Fed(4), Fed(1, 3)), scene.badges)
    assert plain(drawing.heading(0, 80)).rstrip() == "      AAAA BBBB"
    assert [plain(drawing.line(y, 0, 80)).rstrip() for y in range(drawing.count)] == [
        "A p0  █▄·· ····",
        "A p2  ███▄ ····",
        "B p3  ···· ▀▀▀▀",
    ]


def test_an_overview_is_as_dark_as_its_blocks_are_allowed() -> None:
    scene = Scene()
    drawing = OverviewMask(scene.step(Fed(40), Fed(40)), scene.badges, 27, 9)
    assert drawing.title == "Mask 80 queries × 80 keys, overview: a cell is 10 × 4"
    assert plain(drawing.heading(0, 80)).strip().replace(" ", "") == "AB"
    assert [plain(drawing.line(y, 0, 80)) for y in range(drawing.count)] == [
        "A p0   ▓▒░·················",
        "A p10  ██▓▓░···············",
        "A p20  █████▓▒░············",
        "A p30  ███████▓▓░··········",
        "B p0   ··········▓▒░·······",
        "B p10  ··········██▓▓░·····",
        "B p20  ··········█████▓▒░··",
        "B p30  ··········███████▓▓░",
    ]


@given(fed_sequences(), LAYOUTS, WINDOWS)
def test_half_blocks_equal_the_mask(fed: tuple[Fed, ...], layout: str, window: int | None) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    drawing = dense_cells(record, scene.badges, window)
    true = allowed(record, window)
    for line in range(drawing.count):
        text = plain(drawing.line(line, 0, 10_000))
        for x in range(drawing.columns):
            upper, lower = (drawing.area(2 * line + half, x) for half in (0, 1))
            if upper is None:
                continue
            halves = [a is not None and (a.row, a.query, a.key) in true for a in (upper, lower)]
            if "padding" in (halves and layout) or layout == "padded":
                continue
            assert text[x] in {(True, True): "█▒▀", (True, False): "▀", (False, True): "▄"}.get(
                (halves[0], halves[1]), "·"
            )


@given(fed_sequences(), LAYOUTS, st.integers(24, 120), st.integers(6, 30))
def test_the_ladder_ends_where_everything_is_seen(
    fed: tuple[Fed, ...], layout: str, width: int, height: int
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    steps = ladder(record, scene.badges, width, height)
    assert steps[0] is Zoom.FOLDED and len(steps) == len(set(steps)) > 1
    last = drawing_at(steps[-1], record, scene.badges, look, width, height)
    if record.layout == "ragged" or record.shape[1] == 1:
        assert last.columns <= width and last.count < height
    for zoom in steps:
        drawing = drawing_at(zoom, record, scene.badges, look, width, height)
        for y in range(min(drawing.count, height)):
            assert line_width(drawing.line(y, 0, width)) <= width or zoom is not Zoom.FOLDED


# -- cursor ----------------------------------------------------------------------------------------


def drawings(record: StepRecord, scene: Scene, window: int | None = None) -> list[Drawing]:
    return [
        folded(record, scene.badges, look, 70, 12, window),
        folded(record, scene.badges, look, 24, 12, window),
        drawing_at(Zoom.NARROW, record, scene.badges, look, 70, 12, window),
        drawing_at(Zoom.WIDE, record, scene.badges, look, 70, 12, window),
        dense_cells(record, scene.badges, window),
        OverviewMask(record, scene.badges, 40, 10, window=window),
    ]


@given(fed_sequences(), LAYOUTS, WINDOWS)
def test_every_place_leads_to_a_cell_and_back(fed: tuple[Fed, ...], layout: str, window: int | None) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    for drawing in drawings(record, scene, window):
        for y in range(min(drawing.count * drawing.per_line, 12)):
            for x in range(min(drawing.columns, 90)):
                area = drawing.area(y, x)
                if area is None:
                    continue
                spot = drawing.spot(area)
                assert spot is not None
                assert spot.y == y and spot.x <= x < spot.x + spot.columns
                assert explain(record, area, words(scene))


@given(fed_sequences(), LAYOUTS, st.lists(st.sampled_from(((0, 1), (0, -1), (1, 0), (-1, 0))), max_size=30))
def test_the_cursor_always_stands_on_a_cell(
    fed: tuple[Fed, ...], layout: str, moves: list[tuple[int, int]]
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    for drawing in drawings(record, scene):
        spot = drawing.spot(area_of(record, None))
        assert spot is not None
        for dx, dy in moves:
            spot = moved(drawing, spot, dx, dy)
            assert drawing.area(spot.y, spot.x) is not None


@given(fed_sequences(), LAYOUTS, st.data())
def test_an_anchor_finds_its_cell_again(fed: tuple[Fed, ...], layout: str, data: st.DataObject) -> None:
    record = Scene().step(*fed, layout=layout)  # type: ignore[arg-type]
    rows, queries = record.shape
    row, query, key = (data.draw(st.integers(0, n - 1)) for n in (rows, queries, record.num_keys))
    area = Area(row, query, query + 1, key, key + 1)
    found = area_of(record, anchor_of(record, area))
    assert found == area


def test_the_cursor_stays_with_its_key_while_steps_go_by() -> None:
    scene = Scene()
    before, after = scene.step(Fed(1, 9), Fed(1, 20)), scene.step(Fed(1, 10), Fed(1, 21))
    anchor = anchor_of(before, Area(0, 1, 2, 13, 14))
    assert (anchor.key_owner, anchor.key) == ("r1", 3)
    assert area_of(after, anchor) == Area(0, 1, 2, 14, 15)


@pytest.mark.parametrize("names", ["A", "B"])
def test_a_cursor_whose_request_is_gone_goes_to_the_first(names: str) -> None:
    scene = Scene()
    anchor = anchor_of(scene.step(Fed(4), Fed(4)), Area(0, 6, 7, 5, 6))
    found = area_of(scene.step(Fed(1, 7), names=names), anchor)
    assert found.query == 0 and 0 <= found.key < 8


# -- a decode's rectangle --------------------------------------------------------------------------


@given(st.lists(st.integers(0, 90), min_size=1, max_size=8), st.sampled_from(list(Zoom)[:4]))
def test_a_rectangle_of_decodes_shows_every_row_on_every_scale(cached: list[int], zoom: Zoom) -> None:
    scene = Scene()
    record = scene.step(*(Fed(1, tokens) for tokens in cached), layout="padded")
    drawing = drawing_at(zoom, record, scene.badges, look, 60, 20)
    labels = [plain(drawing.line(y, 0, 60)).split()[0] for y in range(drawing.count)]
    assert labels == [scene.badges[segment.request_id].letter for segment in record.segments]
