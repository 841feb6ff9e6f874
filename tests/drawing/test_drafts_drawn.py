"""Steps with drafts on the screen: which were right, what that gained; no rejected one is taken for text."""

from __future__ import annotations

import msgspec
import pytest
from drawn_steps import Fed, Scene
from vllm_streams import folded as records_of
from vllm_streams import lines_of

from cbtui.drawing.kv_blocks import owners_of
from cbtui.drawing.lookback_cards import cards
from cbtui.drawing.mask import DEAD, folded
from cbtui.drawing.mask_spots import Area
from cbtui.drawing.mask_words import Words, explain, legend
from cbtui.drawing.packed_row import packed_row, summary
from cbtui.drawing.row_cursor import token_words
from cbtui.following.frame import Frame
from cbtui.looks.pieces import plain
from cbtui.telling.naming import Badges
from cbtui.telling.narration import figures
from cbtui.telling.request_story import StoryLines
from cbtui.telling.request_tokens import bytes_at
from cbtui.telling.step_story import step_sentences
from cbtui.widgets.counters import counter_lines, counters_line
from cbtui.widgets.mask_grid import lookback
from cbtui.widgets.slots import slot_columns, slot_line, slot_rows
from engine.live.state import EngineState
from engine.stream.drafts import Drafts
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import StepRecord, TokenCounts

SCENE = Scene()


def drafting(accepted: int, used: int | None = None, *, ended: bool = False) -> StepRecord:
    """A, at position 9, was fed ` sat` and drafts ` on`, ` the`, ` hat`."""
    fed = Fed((b" sat", b" on", b" the", b" hat"), 9, "decode", None if ended else b" mat")
    step = SCENE.step(fed)
    drafts = Drafts(3, accepted, accepted if used is None else used)
    segment = msgspec.structs.replace(step.segments[0], drafts=drafts)
    counts = TokenCounts(decode=4 - drafts.wasted, rejected=drafts.wasted)
    return msgspec.structs.replace(step, segments=(segment,), tokens=counts)


def row_of(record: StepRecord) -> str:
    (line,) = packed_row(record, SCENE.badges, SCENE.text, 100, 4).lines
    return plain(line)


def test_the_row_marks_each_draft_and_says_what_was_gained() -> None:
    row = row_of(drafting(2))
    assert "A p9+3" in row and "·sat│✓·on│✓·the│✗·hat" in row
    assert "→ ·mat 41 %, 3 gained, looks at 12 keys" in row
    assert plain(summary(drafting(2), 100)).startswith("4 tokens · 0 padding · 1 rejected · 3 gained")
    assert "·sat│✗·on│✗·the│✗·hat" in row_of(drafting(0)) and "1 gained" in row_of(drafting(0))
    ended = row_of(drafting(3, 1, ended=True))
    assert "·sat│✓·on│○·the│○·hat" in ended and "→ ended, 1 gained" in ended


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (drafting(2), ["draft behind it", "accepted draft", "accepted draft · → ·mat", "key is given up"]),
        (drafting(0), ["→ ·mat", "key is given up", "key is given up", "key is given up"]),
        (drafting(3), ["draft behind it", "accepted draft", "accepted draft", "accepted draft · → ·mat"]),
        (
            drafting(2, 1, ended=True),
            ["draft behind it", "came after the end", "behind the end · its request ended", "given up"],
        ),
    ],
)
def test_the_cursor_tells_what_each_answer_was_used_for(record: StepRecord, told: list[str]) -> None:
    places = packed_row(record, SCENE.badges, SCENE.text, 100, 4).places
    words = [plain(token_words(record, place, SCENE.badges, SCENE.text, 16, 120)) for place in places]
    assert all(wanted in said for wanted, said in zip(told, words, strict=True)), words


def test_the_mask_shows_what_rejected_drafts_see_as_waste() -> None:
    record = drafting(1)
    drawing = folded(record, SCENE.badges, None, 60, 20)
    lines = [plain(drawing.line(y, 0, 60)) for y in range(drawing.count)]
    assert [DEAD in line for line in lines] == [False, False, True, True]
    assert "draft that came to nothing" in plain(legend(record, 100))
    area = Area(0, 3, 4, record.num_keys - 2, record.num_keys - 1)
    words = Words(SCENE.badges, 16, lambda segment, position: b"x")
    assert "p12 x (a rejected draft)" in plain(explain(record, area, words))


# -- a real server's steps ------------------------------------------------------------------------


def frame_at(step: int) -> Frame:
    """The screen's view of a step of the recorded stream."""
    records, ledger, badges = records_of(lines_of("drafts")), Ledger(), Badges()
    metrics = Metrics(ledger)
    seen = []
    for record in records:
        ledger.apply(record)
    for record in records:
        badges.apply(record)
        metrics.apply(record)
        seen.append(record)
        if isinstance(record, StepRecord) and record.step == step:
            break
    return Frame(
        state=EngineState(),
        record=seen[-1],  # type: ignore[arg-type]
        is_live=False,
        records=seen,
        ledger=ledger,
        badges=badges,
        metrics=metrics.snapshot(),
        runs=(),
        run=metrics.current_run,
    )


def test_a_step_is_told_in_sentences() -> None:
    told = " ".join(plain(line) for line in step_sentences(frame_at(2)))
    assert "ride in the same pass as the next tokens of A: T = 4 + 5 + 30 = 39 tokens." in told
    assert "A was fed its last token and 3 drafts: 1 was right, so it gained 2 tokens." in told
    assert "Keys of rejected drafts are given up: the next step writes over them." in told
    told = " ".join(plain(line) for line in step_sentences(frame_at(5)))
    assert "C was fed its last token and 3 drafts: all 3 were right, so it gained 4 tokens." in told
    assert "A, B and C each feed the token they chose last, look back" in told
    assert "rejected" not in told


def test_an_end_among_drafts_is_told() -> None:
    records = records_of(lines_of("drafts"))
    step = next(
        record.step
        for record in records
        if isinstance(record, StepRecord)
        and any(one.drafts and one.drafts.used < one.drafts.accepted for one in record.segments)
    )
    told = " ".join(plain(line) for line in step_sentences(frame_at(step)))
    assert "3 drafts: all 3 were right, but it gained 2 tokens and ended there." in told


def test_panels_say_how_many_drafts_were_right() -> None:
    frame = frame_at(2)
    assert frame.record is not None
    rows = slot_rows(frame)
    for cells, phase in ((120, "decode 1/3 drafts"), (80, "decode 1/3")):
        line = slot_line(frame, rows[0], slot_columns(frame, rows, cells), cells)
        assert phase in plain(line) and ("drafts" in plain(line)) == ("drafts" in phase)
    panel = "\n".join(plain(line) for line in counter_lines(frame, 60, 10))
    assert "rejected" in panel and "33 %  of drafts" in panel and "padding" not in panel
    assert "accepted 33 %" in plain(counters_line(frame, 120))
    _, second = figures(frame.record, is_drafting=True)
    assert plain(second).split() == "prompt 35 decode 2 dead 0 rejected 2".split()


def test_a_request_tells_its_drafts_and_which_tokens_came_together() -> None:
    frame = frame_at(5)
    third = list(frame.ledger.stories)[2]
    story = StoryLines(frame, third, 60)
    lines = [plain(story.line(y)) for y in range(story.count)]
    assert any("drafts fed" in line and "accepted" in line for line in lines)
    assert sum("same step" in line for line in lines) == 9  # three steps that gained four


def test_what_was_rejected_is_nobodys_text() -> None:
    """In the text a query looks back at, at a key, and in the blocks that are filled."""
    frame = frame_at(2)
    assert frame.record is not None
    segment = frame.record.segments[0]
    assert segment.drafts == Drafts(3, 1, 1)
    assert lookback(frame.ledger)(segment).endswith("three.")
    ids = [frame.ledger.decode([token]) for token in segment.token_ids]
    assert ids == [" three", ".", " One", ","]
    for place, token in enumerate(ids):
        assert bytes_at(frame.ledger, segment, segment.position + place) == token.encode()
    assert owners_of(frame)[0].filled == segment.position + 2

    def seen(segment: object, count: int) -> tuple[int, ...]:
        return ()

    text = frame.ledger.token_bytes.get
    drawn = "\n".join(plain(line) for line in cards(frame.record, frame.badges, seen, text, 120, 8))
    assert "A p17 " in drawn and "18 keys, 16 cached" in drawn
