"""A recording vLLM's lines become the records an engine of ours would leave."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from vllm_streams import NAMES, folded, lines_of, steps_of, token_bytes

from engine.attach.vllm_facts import config_of
from engine.attach.vllm_fold import VllmFold
from engine.attach.vllm_lines import (
    Arrived,
    Chunk,
    Cost,
    Ended,
    Header,
    Key,
    Line,
    Lost,
    Output,
    Over,
    Scheduled,
    Standing,
)
from engine.attach.vllm_steps import NOT_SAID
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import NO_BLOCK, STOP_OR_ABORT, QuietRecord, Record, StepRecord


def told(records: list[Record]) -> tuple[Ledger, Metrics]:
    ledger = Ledger()
    metrics = Metrics(ledger)
    for record in records:
        ledger.apply(record)
        metrics.apply(record)
    return ledger, metrics


# -- what must hold of every step of a real server ----------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_request_ends_once_and_was_there_before(name: str) -> None:
    records = folded(lines_of(name))
    submitted = [one.request_id for record in records for one in record.events.submitted]
    finished = [one.request_id for record in records for one in record.events.finished]
    assert len(set(submitted)) == len(submitted)
    assert sorted(submitted) == sorted(finished)
    alive: set[str] = set()
    for record in records:
        alive |= {one.request_id for one in record.events.submitted}
        if isinstance(record, StepRecord):
            assert {one.request_id for one in record.segments} <= alive
        alive -= {one.request_id for one in record.events.finished}


@pytest.mark.parametrize("name", NAMES)
def test_positions_go_on_where_the_last_step_ended(name: str) -> None:
    computed: Counter[str] = Counter()
    for record in steps_of(folded(lines_of(name))):
        for gone in record.events.preempted:
            assert gone.lost_tokens == computed[gone.request_id]
            computed[gone.request_id] = 0
        for admission in record.events.admitted:
            computed[admission.request_id] = admission.num_cached_tokens
        for segment in record.segments:
            assert segment.position == computed[segment.request_id]
            assert segment.kv_len == segment.position + segment.q_len
            computed[segment.request_id] = segment.position + segment.num_kept
        for slot in record.slots:
            assert slot.num_computed_tokens == computed[slot.request_id]


@pytest.mark.parametrize("name", NAMES)
def test_the_row_is_packed_without_gaps_and_tokens_are_told(name: str) -> None:
    fed: dict[str, list[int]] = {}
    for record in steps_of(folded(lines_of(name))):
        column = key = 0
        for segment in record.segments:
            assert (segment.q_start, segment.kv_start) == (column, key)
            assert segment.q_len == len(segment.token_ids) and min(segment.token_ids) >= 0
            column, key = column + segment.q_len, key + segment.kv_len
            known = fed.setdefault(segment.request_id, [])
            del known[segment.position :]
            known += segment.token_ids
        assert record.shape == (1, column) and record.num_keys == key
        assert record.tokens.total == column <= record.max_num_batched_tokens
        assert record.tokens.padding == record.tokens.dead == 0


@pytest.mark.parametrize("name", NAMES)
def test_no_block_has_two_owners_unless_a_common_prefix_is_in_it(name: str) -> None:
    """Two tables may hold a block at the same place only: what is before it is the same, too."""
    size = lines_of(name)[0].block_size  # type: ignore[union-attr]
    tables: dict[str, tuple[int, ...]] = {}
    fed: dict[str, list[int]] = {}
    num_shared = 0
    for record in folded(lines_of(name)):
        left_now = {one.request_id for one in record.events.released}
        if isinstance(record, QuietRecord):
            for request_id in left_now:
                tables.pop(request_id)
            continue
        for gone in record.events.preempted:
            tables.pop(gone.request_id)
        for admission in record.events.admitted:
            fed.setdefault(admission.request_id, [])
        for segment in record.segments:
            tables[segment.request_id] = segment.block_ids
            assert len(segment.block_ids) >= -(-segment.kv_len // size)
            known = fed[segment.request_id]
            known += [-1] * (segment.position - len(known))  # a prefix hit's tokens are not fed
            del known[segment.position :]
            known += segment.token_ids
        holders: dict[int, list[tuple[str, int]]] = {}
        for request_id, table in tables.items():
            assert len(set(table)) == len(table)
            for place, block in enumerate(table):
                holders.setdefault(block, []).append((request_id, place))
        for owners in holders.values():
            assert len({place for _, place in owners}) == 1
            if len(owners) > 1:
                num_shared += 1
        # One block is vLLM's own; what is neither free nor that is somebody's.
        left = {block for one, table in tables.items() if one not in left_now for block in table}
        assert record.num_blocks - 1 - record.free_blocks == len(left)
        for request_id in left_now:
            tables.pop(request_id)
    assert bool(num_shared) == (name == "pressed")


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_has_one_request_and_keeps_it(name: str) -> None:
    lanes: dict[int, str] = {}
    for record in folded(lines_of(name)):
        for gone in record.events.preempted:
            assert lanes.pop(gone.slot) == gone.request_id
        for admission in record.events.admitted:
            assert admission.slot not in lanes
            lanes[admission.slot] = admission.request_id
        if isinstance(record, StepRecord):
            assert {slot.slot: slot.request_id for slot in record.slots} == lanes
            assert all(lanes[segment.slot] == segment.request_id for segment in record.segments)
            assert len(lanes) <= record.max_num_seqs
        for release in record.events.released:
            assert lanes.pop(release.slot) == release.request_id


@pytest.mark.parametrize("name", NAMES)
def test_blocks_that_move_are_counted(name: str) -> None:
    held = 0
    for record in folded(lines_of(name)):
        held += record.events.blocks_allocated - record.events.blocks_freed
        if isinstance(record, StepRecord):
            # Ended ones are counted as freed in the next step's record.
            assert held >= record.num_blocks - 1 - record.free_blocks
    assert held >= 0


# -- the story of the two streams ---------------------------------------------------------------


def test_the_tutorials_schedule_is_ours() -> None:
    records = folded(lines_of("tutorial"))
    ledger, metrics = told(records)
    stories = list(ledger.stories.values())
    assert [story.finish_step for story in stories] == [6, 50, 300, 36, 216, 95]
    assert [story.turns[1].slot for story in stories] == [0, 1, 2, 0, 0, 1]
    assert [len(story.output_token_ids) for story in stories] == [6, 50, 300, 30, 180, 45]
    assert metrics.snapshot().num_output_tokens == 611
    steps = steps_of(records)
    assert sum(record.tokens.total for record in steps) == 646
    assert (steps[0].tokens.total, steps[6].tokens.total, steps[6].num_keys) == (17, 12, 34)
    assert stories[0].request.prompt_text == "The capital of France is"
    assert ledger.output_text(stories[0]).startswith(" Paris")
    assert [one.reason for one in steps[0].waiting] == ["no_free_slot"] * 3
    # The row is vLLM's real one: D took the place of A in the batch, before B and C.
    assert [segment.slot for segment in steps[6].segments] == [0, 1, 2]


def test_under_pressure() -> None:
    records = folded(lines_of("pressed"))
    ledger, metrics = told(records)
    stories = list(ledger.stories.values())
    gave_way = [story for story in stories if story.num_preemptions]
    assert len(gave_way) == 1 and gave_way[0].turns[3].kind == "back"
    hits = {story.index: story.num_cached_tokens for story in stories if story.num_cached_tokens}
    assert hits == {1: 32, 4: 32, 6: 32}  # 1 is back after it gave way
    assert stories[5].finish is not None and stories[5].finish.reason == STOP_OR_ABORT
    assert metrics.snapshot().num_requests == metrics.snapshot().num_finished == 7
    steps = steps_of(records)
    assert any(segment.num_prompt_left for record in steps for segment in record.segments)
    assert max(record.tokens.total for record in steps) == 48
    reasons = {one.reason for record in steps for one in record.waiting}
    assert {"no_free_slot", "token_budget", "behind"} <= reasons
    recomputed = sum(record.tokens.recomputed for record in steps)
    (lost,) = [one.lost_tokens for record in steps for one in record.events.preempted]
    assert 0 < recomputed <= lost
    assert any(isinstance(r, QuietRecord) and r.events.figures for r in records)


# -- what a reader meets -------------------------------------------------------------------------

HEADER = Header(1, "m", 0.0, 1000.0, 7, block_size=4, num_blocks=9, max_num_seqs=2, max_num_batched_tokens=8)


def arrived(number: int, length: int = 3, t: float = 1.0) -> Arrived:
    return Arrived(t, number, f"r{number}", length, 5, tuple(range(10, 10 + length)))


def scheduled(step: int, *rows: tuple[int, int, int], wait: int = 0, **more: object) -> Scheduled:
    return Scheduled(step, float(step), 0.01, len(rows), wait, rows, **more)  # type: ignore[arg-type]


def output(step: int, *tokens: tuple[int, int], **more: object) -> Output:
    out = tuple((number, (token,)) for number, token in tokens)
    return Output(step, step + 0.5, 0.01, out, **more)  # type: ignore[arg-type]


def test_a_reader_that_comes_late_begins_with_a_keyframe() -> None:
    running = Arrived(7.9, 4, "r4", 3, 9, (10, 11, 12), at=5, out=(20, 21, 22), on=True, table=(1, 2))
    waiting = Arrived(7.9, 5, "r5", 2, 9, (30, 31))
    lines: list[Line] = [
        HEADER,
        Key(8, 7.9, (running, waiting), ((5, "WAITING"),), 1),
        scheduled(8, (4, 1, 5), wait=1),
        output(8, (4, 23)),
        scheduled(9, (4, 1, 6), (5, 2, 0), tables={5: (3,)}, q=()),
        output(9, (4, 24), (5, 32)),
    ]
    records = folded(lines, VllmFold())
    first, second = steps_of(records)
    assert first.step == 8 and first.missed == 0
    assert first.segments[0].token_ids == (22,) and first.segments[0].block_ids == (1, 2)
    assert first.slots[0].num_output_tokens == 4 and first.tokens.decode == 1
    assert first.events.admitted[0].num_cached_tokens == 0  # it was fed before: no prefix hit
    assert [one.request_id for one in first.waiting] == ["r5"]
    assert second.segments[1].kind == "prefill"
    ledger, metrics = told(records)
    story = ledger["r4"]
    assert story.output_token_ids == [20, 21, 22, 23, 24]
    # When its first tokens came nobody saw: no figure is made of that.
    assert story.ttft_s is None and story.tpot_s == pytest.approx(1.0)
    assert metrics.snapshot().ttft_p50_s == pytest.approx(ledger["r5"].ttft_s)
    assert metrics.snapshot().itl_p50_s == pytest.approx(1.0)


def test_a_step_scheduled_before_the_last_ones_tokens_are_there() -> None:
    """vLLM's asynchronous scheduling: the row of step 2 holds a token that step 1 has yet to make."""
    lines: list[Line] = [
        HEADER,
        arrived(0),
        scheduled(1, (0, 3, 0), tables={0: (1,)}),
        scheduled(2, (0, 1, 3)),
        output(1, (0, 50)),
        output(2, (0, 51)),
    ]
    first, second = steps_of(folded(lines, VllmFold()))
    assert first.segments[0].sampled == 50
    assert second.segments[0].token_ids == (50,) and second.segments[0].kind == "decode"
    assert second.start_s >= first.end_s


def test_a_step_that_only_goes_on_needs_no_rows() -> None:
    lines: list[Line] = [
        HEADER,
        arrived(0),
        arrived(1, length=2),
        scheduled(1, (0, 3, 0), (1, 2, 0), tables={0: (1,), 1: (2,)}),
        Output(1, 1.5, 0.01, tok=(50, 60), free=5),
        Scheduled(2, 2.0, 0.01, 2, 0),
        Scheduled(3, 3.0, 0.01, 2, 0),
        Output(2, 3.5, 0.01, tok=(51, 61)),
        Output(3, 4.5, 0.01, tok=(52, 62), order=(1, 0)),
    ]
    steps = steps_of(folded(lines, VllmFold()))
    assert [[(one.token_ids, one.position, one.sampled) for one in step.segments] for step in steps] == [
        [((10, 11, 12), 0, 50), ((10, 11), 0, 60)],
        [((50,), 3, 51), ((60,), 2, 61)],
        [((61,), 3, 62), ((51,), 4, 52)],
    ]


def test_what_comes_while_a_step_runs_waits_behind_the_others() -> None:
    lines: list[Line] = [
        HEADER,
        arrived(0),
        arrived(1),
        arrived(2),
        scheduled(1, (0, 3, 0), (1, 3, 0), wait=1, q=((2, "WAITING"),), tables={0: (1,), 1: (2,)}),
        arrived(3),
        output(1, (0, 50), (1, 60)),
    ]
    (step,) = steps_of(folded(lines, VllmFold()))
    assert step.waiting_count == 2
    assert [(one.request_id, one.reason) for one in step.waiting] == [
        ("r2", "no_free_slot"),
        ("r3", "next_step"),
    ]


def test_an_end_from_outside_waits_for_the_steps_under_way() -> None:
    lines: list[Line] = [
        HEADER,
        arrived(0),
        arrived(1),
        scheduled(1, (0, 3, 0), (1, 3, 0), tables={0: (1,), 1: (2,)}),
        Ended(1.2, ((0, "abort"),)),
        output(1, (1, 60)),
        Ended(2.0, ((1, "abort"),)),
    ]
    *_, step, last = folded(lines, VllmFold())
    assert isinstance(step, StepRecord) and len(step.segments) == 2
    assert [(one.request_id, one.reason) for one in step.events.finished] == [("r0", STOP_OR_ABORT)]
    assert step.segments[0].sampled is None
    assert isinstance(last, QuietRecord) and last.events.released[0].slot == 1


def test_after_a_loss_a_keyframe_tells_who_has_gone() -> None:
    fold = VllmFold()
    before = folded(
        [HEADER, arrived(0), arrived(1), scheduled(1, (0, 3, 0), tables={0: (1,)}), output(1, (0, 50))], fold
    )
    stays = Arrived(1.0, 0, "r0", 3, 5, (10, 11, 12), at=5, out=(50, 51, 52), on=True, table=(1, 2))
    after = folded(
        [
            Lost(6),
            arrived(7),  # cannot be: a keyframe comes first; it must not do harm
            Key(9, 8.0, (stays,)),
            scheduled(9, (0, 1, 5)),
            output(9, (0, 53)),
        ],
        fold,
    )
    (step,) = steps_of(after)
    assert step.missed == 7 and step.events.errors == ("6 lines of the stream were lost",)
    assert step.slots[0].slot == 0 and not step.events.admitted
    ends = [one for record in after for one in record.events.finished]
    assert {one.request_id for one in ends} == {"r1", "r7"} and all(one.error for one in ends)
    told(before + after)


def test_a_server_that_was_started_anew_goes_on_counting() -> None:
    fold = VllmFold()
    before = folded([HEADER, arrived(0), scheduled(1, (0, 3, 0), tables={0: (1,)}), output(1, (0, 5))], fold)
    anew = msgspec.structs.replace(HEADER, pid=8, t=50.0)
    after = folded(
        [anew, arrived(0, t=51.0), scheduled(1, (0, 3, 0), tables={0: (1,)}), output(1, (0, 5))],
        fold,
    )
    # The second server's first request has a name of its own in truth; here its number is what is tested.
    assert [one.error for record in after for one in record.events.finished] == [
        "the server was started anew"
    ]
    (step,) = steps_of(after)
    assert step.step == 2 and step.missed == 0
    assert steps_of(before)[0].step == 1


def test_preempted_requests_come_back() -> None:
    lines: list[Line] = [
        HEADER,
        arrived(0),
        arrived(1),
        scheduled(1, (0, 3, 0), (1, 3, 0), tables={0: (1,), 1: (2,)}),
        output(1, (0, 50), (1, 60)),
        scheduled(2, (0, 1, 3), more={0: (2,)}, pre=(1,), q=((1, "PREEMPTED"),), wait=1),
        output(2, (0, 51), end=((0, "length"),)),
        scheduled(3, (1, 4, 0), tables={1: (1,)}, q=()),
        output(3, (1, 61)),
    ]
    _, second, third = steps_of(folded(lines, VllmFold()))
    assert second.events.preempted[0].lost_tokens == 3
    assert second.waiting[0].preempted and second.waiting[0].reason == "kv_blocks"
    assert third.events.admitted[0].resumed
    assert (third.tokens.recomputed, third.tokens.decode) == (3, 1)


def test_a_finished_request_of_a_step_nobody_saw() -> None:
    running = Arrived(9.0, 4, "r4", 3, 9, (10, 11, 12), at=4, out=(20,), on=True, table=(1,))
    lines: list[Line] = [HEADER, Key(8, 9.0, (running,)), output(7, (4, 21), end=((4, "stop"),))]
    *_, last = folded(lines, VllmFold())
    assert [one.reason for one in last.events.finished] == ["stop"]
    assert last.events.finished[0].num_output_tokens == 2


def test_the_cost_of_recording_is_a_figure() -> None:
    (record,) = folded([HEADER, Cost(1.0, 256, 0.02, 0.03, 0, 0)], VllmFold())
    assert dict(record.events.figures)["recording: seconds in the server's steps"] == 0.02


def test_token_bytes_stand_once_in_the_stream() -> None:
    records = folded(lines_of("tutorial"))
    tokens = [token for record in records for token in record.events.tokens]
    assert len({number for number, _ in tokens}) == len(tokens)
    assert all(text == token_bytes(number) for number, text in tokens)


# -- why one waits, windows, chunks, the end ------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "header", "reason"),
    [
        ({"pause": "PAUSED_NEW"}, {}, "paused"),
        ({"run": 2}, {}, "no_free_slot"),
        ({}, {"max_active": 1}, "no_free_slot"),
        ({"held": 1}, {}, "no_free_slot"),
        ({}, {"max_scheduled": 3}, "token_budget"),
        ({}, {"chunked_prefill": False, "max_num_batched_tokens": 7}, "token_budget"),
        ({"free": 1}, {}, "kv_blocks"),
        ({"pre": (7,)}, {}, "kv_blocks"),
        ({"pre": (7,), "reset": (7,)}, {}, NOT_SAID),
        ({"free": 2}, {}, NOT_SAID),
        ({}, {}, NOT_SAID),
    ],
)
def test_why_one_waits_is_said_where_it_is_known(
    more: dict[str, object], header: dict[str, object], reason: str
) -> None:
    lines: list[Line] = [
        msgspec.structs.replace(HEADER, **header),
        arrived(0),
        arrived(1, length=5),
        msgspec.structs.replace(scheduled(1, (0, 3, 0), wait=1, q=((1, "WAITING"),)), **more),
        output(1, (0, 50)),
    ]
    (step,) = steps_of(folded(lines, VllmFold()))
    assert [one.reason for one in step.waiting] == [reason]


def test_a_keyframe_comes_line_by_line() -> None:
    fold = VllmFold()
    running = Standing(7.9, 4, "r4", 3, 9, (10, 11, 12), at=5, out=(20, 21, 22), on=True, table=(-1, 2))
    broken_off: list[Line] = [HEADER, Standing(7.0, 3, "r3", 1, 9)]
    whole: list[Line] = [HEADER, running, Key(8, 7.9), scheduled(8, (4, 1, 5)), output(8, (4, 23))]
    records = folded([*broken_off, *whole], fold)
    assert [one.request_id for record in records for one in record.events.submitted] == ["r4"]
    (step,) = steps_of(records)
    assert step.segments[0].block_ids == (NO_BLOCK, 2)
    assert step.kv_tokens == 6 - 4  # a window has left the first four


def test_a_prompt_in_chunks_goes_on_as_one_request() -> None:
    lines: list[Line] = [
        HEADER,
        arrived(0),
        scheduled(1, (0, 3, 0), tables={0: (1,)}),
        output(1, (0, 50)),
        scheduled(2, (0, 1, 3)),
        output(2, (0, 51)),
        Chunk(2.5, 0, (10, 11, 12, 50, 30, 31), 5),  # the last output is dropped
        scheduled(3, (0, 2, 4), tables={0: (1, 2)}),
        output(3, (0, 60)),
    ]
    records = folded(lines, VllmFold())
    *_, last = steps_of(records)
    assert last.segments[0].token_ids == (30, 31) and last.segments[0].kind == "prefill"
    assert not last.events.admitted and last.slots[0].num_output_tokens == 1
    told(records)


def test_the_streams_last_word_is_told() -> None:
    fold = VllmFold()
    (record,) = folded([HEADER, Over("20 faults")], fold)
    assert record.events.errors == ("20 faults",) and fold.over == "20 faults"


@pytest.mark.parametrize(
    ("changed", "as_usual"),
    [
        ({}, set()),
        ({"block_size": 131_072 * 3, "num_blocks": 500}, {"block_size", "num_blocks"}),
        ({"num_blocks": 0}, {"num_blocks"}),
        ({"max_model_len": 1}, {"max_model_len"}),
        ({"block_size": 1056, "num_blocks": 3}, set()),
    ],
)
def test_only_limits_that_do_not_fit_here_stay_at_the_usual(
    changed: dict[str, int], as_usual: set[str]
) -> None:
    limits = {"block_size": 8, "num_blocks": 50_000, "max_num_seqs": 7, "max_model_len": 131_072} | changed
    config = config_of(msgspec.structs.replace(HEADER, **limits))
    assert {name for name, value in limits.items() if getattr(config, name) != value} <= as_usual
