from __future__ import annotations

from drawn_steps import STEP_1, STEP_7, Fed, Scene, fed_sequences, prefill
from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.packed_row import packed_row, summary, title
from cbtui.drawing.row_cursor import anchor_of, moved, place_of, token_words
from cbtui.drawing.token_cells import percent
from cbtui.drawing.window import text_between
from cbtui.looks.pieces import line_width, plain
from cbtui.looks.tokens import clip, visible
from engine.stream.records import StepRecord


def drawn(record: StepRecord, scene: Scene, width: int = 158, height: int = 4) -> list[str]:
    lines = packed_row(record, scene.badges, scene.text, width, height).lines
    return [plain(line).rstrip() for line in lines]


def test_the_first_mixed_step_is_one_row_with_positions_below() -> None:
    scene = Scene()
    record = scene.step(*STEP_7, names="DBC")
    assert title(record) == "Packed row [1, 12] · 22 cached"
    row, positions = drawn(record, scene)
    assert row == (
        " D prefill 10  Once│·upon│·a│·time│·in│·a│·land│·far│·away│, → ·that 41 %"
        "   B p10  ·to → ·see 31 %   C p12  ·algorithm → ·that 41 %"
    )
    for position, token in enumerate(
        ("Once", "·upon", "·a", "·time", "·in", "·a", "·land", "·far", "·away", ",")
    ):
        assert row[positions.index(str(position)) :].startswith(token)
    assert plain(summary(record, 158)) == (
        "12 tokens · 0 padding · 3 sampled      "
        "as a padded rectangle: 3 × 10 = 30 positions, 18 of them padding"
    )


def test_three_prompts_wrap_and_lose_nothing() -> None:
    scene = Scene()
    record = scene.step(*STEP_1)
    assert title(record) == "Packed row [1, 17]"
    lines = drawn(record, scene, width=80, height=8)
    assert sum(line.count("│") for line in lines) == 17 - 3
    assert sum(line.count("→") for line in lines) == 3


def test_up_to_eight_tokens_each_sequence_has_a_line() -> None:
    scene = Scene()
    record = scene.step(Fed((b" algorithm",), 12), Fed((b" to",), 9, sampled=b" see"))
    assert drawn(record, scene) == [
        " A p12  ·algorithm → ·that 41 %, looks at 13 keys",
        " B p9   ·to        → ·see 41 %, looks at 10 keys",
    ]


def test_sequences_stand_in_columns_where_lines_are_few() -> None:
    scene = Scene()
    lines = drawn(scene.step(*(Fed((b" to",), 12) for _ in range(8))), scene, height=3)
    assert len(lines) == 3
    assert [line.split()[0] for line in lines] == ["A", "B", "C"]
    assert sum(line.count("→") for line in lines) == 8


def test_a_long_prompt_keeps_its_first_and_its_sampled_token() -> None:
    scene = Scene()
    row, positions = drawn(scene.step(Fed(512)), scene, height=2)
    assert row.startswith(" A prefill 512  ·Once│·upon│") and row.endswith("→ ·that 41 %")
    assert "⟨+" in row and positions.split()[-1] == "511"
    assert row[positions.index("511") - 1] == "│"


def test_a_chunk_says_where_it_starts_and_what_is_left() -> None:
    scene = Scene()
    row = drawn(scene.step(Fed(9, 16, left=23)), scene)[0]
    assert row.startswith(" A prefill 9 from p16  ") and row.endswith("⋯ 23 to come")


def test_a_padded_step_is_a_rectangle_with_padding_on_the_left() -> None:
    scene = Scene()
    record = scene.step(
        prefill("The", " capital"),
        prefill("In"),
        Fed((b" is",), 4),
        layout="padded",
        mode="continuous-padded",
    )
    assert title(record) == "Rectangle [3, 2] · 4 cached"
    assert drawn(record, scene) == [
        " A prefill 2  The│·capital → ·that 41 %",
        " B prefill 1  ╳  │In       → ·that 41 %",
        " C p4         ╳  │·is      → ·that 41 %",
    ]
    assert plain(summary(record, 158)) == "6 positions · 2 padding · 3 sampled      packed it would be [1, 4]"


def test_a_wide_rectangle_leaves_middle_columns_out() -> None:
    scene = Scene()
    record = scene.step(Fed(200), Fed(1, 9), layout="padded")
    lines = drawn(record, scene, width=80)
    assert "⟨+" in lines[0] and "╳×" in lines[1]
    assert lines[0].endswith("→ ·that 41 %") and lines[1].endswith("→ ·that 41 %")


def test_dead_rows_are_marked_and_the_packed_step_would_do_without() -> None:
    scene = Scene()
    record = scene.step(Fed((b" x",), 9, "dead"), Fed((b" y",), 12), layout="padded", mode="static")
    lines = drawn(record, scene)
    assert lines[0] == " A dead  ·x ░ ended: fed again, nothing sampled"
    assert plain(summary(record, 158)) == (
        "2 positions · 0 padding · 1 dead · 1 sampled      packed, without dead rows, it would be [1, 1]"
    )


def test_odd_tokens_stay_in_their_cells() -> None:
    scene = Scene()
    odd = ("日本", " 👍", "שלום", "\x1b[31m", "[bold]x[/]", "\u202e", "\u0301", "\n")
    data = (*(word.encode() for word in odd), b"\xe2\x80")
    record = scene.step(Fed(data), Fed((b"\x00",), 3, sampled=b"\xff"))
    row, positions = drawn(record, scene)
    assert row == (
        " A prefill 9  日本│·👍│שלום│␛[31m│[bold]x[/]│⟨U+202E⟩│◌\u0301│⏎│⟨E2 80⟩ → ·that 41 %"
        "   B p3  ␀ → ⟨FF⟩ 41 %"
    )
    # Wide characters take two cells, so the third token starts two columns later than its index.
    assert positions.index("2") == row.index("ש") + 3


def test_a_probability_never_claims_certainty() -> None:
    assert [percent(x) for x in (0.0, -0.0001, -0.693147, -9.0)] == [">99 %", ">99 %", "50 %", "<1 %"]


@given(fed_sequences(), st.sampled_from(("ragged", "padded")), st.integers(18, 160), st.integers(1, 9))
def test_lines_fit_any_width(fed: tuple[Fed, ...], layout: str, width: int, height: int) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    lines = packed_row(record, scene.badges, scene.text, width, height).lines
    assert all(line_width(line) <= width for line in lines)
    assert line_width(summary(record, width)) <= width


@given(fed_sequences())
def test_a_row_with_room_shows_every_token_and_every_sampled_one(fed: tuple[Fed, ...]) -> None:
    scene = Scene()
    record = scene.step(*fed)
    shown = "".join(drawn(record, scene, width=200, height=60))
    assert "⟨+" not in shown
    assert shown.count("→") == sum(segment.sampled is not None for segment in record.segments)


# -- the cursor ------------------------------------------------------------------------------------


def places_hold_their_tokens(record: StepRecord, scene: Scene, width: int, height: int, whole: bool) -> None:
    made = packed_row(record, scene.badges, scene.text, width, height, is_whole=whole)
    assert len(made.places) == len({(p.segment, p.token) for p in made.places})
    for place in made.places:
        segment = record.segments[place.segment]
        data = scene.text(segment.token_ids[place.token]) or b""
        shown = text_between(made.lines[place.line], place.column, place.column + place.width)
        # The last cell of a line that goes on is an ellipsis.
        assert shown == clip(visible(data), place.width) or shown[-1] == "…"


@given(
    fed_sequences(),
    st.sampled_from(("ragged", "padded")),
    st.integers(30, 160),
    st.integers(1, 9),
    st.booleans(),
)
def test_every_place_holds_its_token(
    fed: tuple[Fed, ...], layout: str, width: int, height: int, whole: bool
) -> None:
    scene = Scene()
    record = scene.step(*fed, layout=layout)  # type: ignore[arg-type]
    places_hold_their_tokens(record, scene, width, height, whole)


def test_wide_and_strange_tokens_have_places_too() -> None:
    scene = Scene()
    record = scene.step(prefill("日本", "[b]", "\x1b[2J", "é", "שלום", "🙂", " x", "\n", "y", "z"))
    places_hold_their_tokens(record, scene, 120, 4, True)


def test_a_whole_row_of_512_has_a_place_for_every_token() -> None:
    scene = Scene()
    record = scene.step(Fed(512), Fed(1, 30))
    made = packed_row(record, scene.badges, scene.text, 120, 4, is_whole=True)
    assert len(made.places) == 513
    assert "⟨+" not in "".join(plain(line) for line in made.lines)
    assert "⟨+" in "".join(plain(line) for line in packed_row(record, scene.badges, scene.text, 120, 4).lines)


def test_an_unfolded_rectangle_is_cut_into_bands_with_its_columns_aligned() -> None:
    scene = Scene()
    record = scene.step(Fed(40), Fed(1, 9), Fed(6, 3), layout="padded")
    made = packed_row(record, scene.badges, scene.text, 80, 4, is_whole=True)
    lines = [plain(line).rstrip() for line in made.lines]
    assert "⟨+" not in "".join(lines) and all(line_width(line) <= 80 for line in made.lines)
    bands = [lines[y : y + 3] for y in range(0, len(lines), 4)]
    assert len(bands) > 2 and all(not line for line in lines[3::4])
    for band in bands:
        assert band[0].startswith(" A prefill 40") and band[1].startswith(" B p9")
        rules = [[x for x, sign in enumerate(line) if sign == "│"] for line in band]
        assert rules[0] == rules[1] == rules[2]
    # What came of a row stands at its end only; padding is drawn wherever it is.
    assert [line.count("→") for line in lines] == [0] * (len(lines) - 3) + [1, 1, 1]
    assert "".join(lines).count("╳") == record.tokens.padding


@given(fed_sequences(), st.integers(40, 160))
def test_an_unfolded_rectangle_has_a_place_for_every_token(fed: tuple[Fed, ...], width: int) -> None:
    scene = Scene()
    record = scene.step(*fed, layout="padded")
    made = packed_row(record, scene.badges, scene.text, width, 4, is_whole=True)
    tokens = [(n, token) for n, s in enumerate(record.segments) for token in range(s.q_len)]
    if record.shape[1] > 1:
        assert [(place.segment, place.token) for place in made.places] == tokens


def test_the_cursor_goes_along_a_row_from_band_to_band() -> None:
    scene = Scene()
    record = scene.step(Fed(40), Fed(20), layout="padded")
    places = packed_row(record, scene.badges, scene.text, 60, 4, is_whole=True).places
    at = places[0]
    for token in range(1, 40):
        at = moved(places, at, 1, 0)
        assert (at.segment, at.token) == (0, token)
    below = moved(places, at, 0, 1)
    assert (below.segment, below.token) == (1, 19), "the same column"


def test_the_cursor_walks_in_reading_order_and_to_the_line_below() -> None:
    scene = Scene()
    record = scene.step(Fed(40), Fed(1, 30))
    places = packed_row(record, scene.badges, scene.text, 80, 4, is_whole=True).places
    at = places[0]
    for following in places[1:]:
        at = moved(places, at, 1, 0)
        assert at == following
    assert moved(places, at, 1, 0) == at
    below = moved(places, places[0], 0, 1)
    assert below.line > places[0].line


def test_a_token_in_words() -> None:
    scene = Scene()
    record = scene.step(*STEP_7, names="DBC")
    made = packed_row(record, scene.badges, scene.text, 140, 5, is_whole=True)

    def said(number: int) -> str:
        return plain(token_words(record, made.places[number], scene.badges, scene.text, 16, 140))

    assert said(1) == (" D p1  ·upon  id 1 · its key and value are stored; its prediction is not used")
    assert said(10).startswith(" B p10  ·to  id ") and "→ ·see 31 %" in said(10)


def test_the_cursor_stays_with_the_newest_token_of_its_sequence() -> None:
    scene = Scene()
    before, after = scene.step(Fed(9), Fed(1, 3)), scene.step(Fed(1, 9), Fed(1, 4))
    places = packed_row(before, scene.badges, scene.text, 140, 5).places
    anchor = anchor_of(before, places[-1])
    found = place_of(after, packed_row(after, scene.badges, scene.text, 140, 5).places, anchor)
    assert found is not None and found.segment == 1
