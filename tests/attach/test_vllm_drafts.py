"""A vLLM that decodes speculatively: what becomes of its drafts, from its scheduler to the records."""

from __future__ import annotations

import importlib
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_vllm
import msgspec
import pytest
from cbtui_vllm.recorder import Recorder
from hypothesis import given
from hypothesis import strategies as st
from vllm_streams import folded, lines_of, steps_of

from engine.attach import vllm_lines
from engine.attach.vllm_facts import provenance_of, unfit
from engine.attach.vllm_fold import VllmFold
from engine.attach.vllm_lines import Header, Key, Line, Output, Scheduled
from engine.prometheus.totals import Totals
from engine.stream.drafts import Drafts
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import UNKNOWN_TOKEN, Record, Segment, StepRecord, TokenCounts
from engine.stream.soundness import Soundness

HEADER = Header(1, "m", 0.0, 1000.0, 7, num_blocks=99, max_num_seqs=3, speculative=True, drafts=3)


def told(records: list[Record]) -> tuple[Ledger, Metrics, Totals]:
    ledger, totals, soundness = Ledger(), Totals(), Soundness()
    metrics = Metrics(ledger)
    for record in records:
        assert not soundness.flaw(record)
        ledger.apply(record)
        metrics.apply(record)
        totals.apply(record)
    return ledger, metrics, totals


# -- a real server --------------------------------------------------------------------------------


def test_a_real_servers_own_counters_are_ours() -> None:
    """What it said at /metrics after these twelve requests: drafts, accepted ones, tokens, gaps."""
    ledger, metrics, totals = told(folded(lines_of("drafts")))
    stories = ledger.stories.values()
    assert sum(story.num_drafts for story in stories) == 58
    assert sum(story.num_accepted for story in stories) == 32
    assert sum(len(story.output_token_ids) for story in stories) == totals.generation_tokens == 199
    assert totals.between_tokens_s.count == sum(len(story.gaps_s()) for story in stories) == 158
    assert sum(run.drafts for run in metrics.runs) == 58 and sum(run.accepted for run in metrics.runs) == 32
    assert metrics.snapshot().acceptance_rate == pytest.approx(17 / 37)  # of the second half, the last run


def test_the_text_is_what_the_api_gave() -> None:
    ledger, _, _ = told(folded(lines_of("drafts")))
    stories = list(ledger.stories.values())
    assert ledger.output_text(stories[2]) == " in range(10):\n    print(i)\n```\n\nThis code will output:"
    assert ledger.output_text(stories[6]) == " in range(10):\n    print(i)"


def test_every_draft_of_a_step_is_accounted_for() -> None:
    seen = set()
    for record in steps_of(folded(lines_of("drafts"))):
        drafted = [one.drafts for one in record.segments if one.drafts]
        assert record.tokens.rejected == sum(drafts.wasted for drafts in drafted)
        for segment in record.segments:
            if segment.drafts:
                fates = [segment.fate(n) for n in range(segment.q_len)]
                seen |= {*fates}
                assert fates[0] is None and fates.count("rejected") == segment.drafts.rejected
                assert len(segment.outputs) == segment.drafts.used + (segment.sampled is not None)
    assert seen == {None, "accepted", "unused", "rejected"}


# -- any server -----------------------------------------------------------------------------------


class Lines:
    """Stands for the recorder's stream: keeps what is put as it would be read."""

    is_over, is_heard, takes_key = False, True, True
    cpu_s = 0.0
    num_lost = 0

    def __init__(self) -> None:
        self.wants_key = False
        self.lines: list[Line] = [HEADER]

    def put(self, line: dict[str, Any], finish: Callable[[Any], Any] | None = None, size: int = 0) -> None:
        line = finish(line) if finish else line
        self.lines.append(vllm_lines.decode(json.dumps(line).encode()))

    def put_key(self, line: dict[str, Any], finish: Callable[[Any], Any]) -> None:
        self.wants_key = False
        for one in finish(line):
            self.put(one)


def run(draw: st.DataObject, *, is_ahead: bool) -> tuple[list[Line], list[fake_vllm.Request]]:
    """A drafting server's life, its drafts right as often as drawn; with one keyframe somewhere."""
    kind = fake_vllm.AsyncScheduler if is_ahead else fake_vllm.Scheduler
    scheduler = kind(fake_vllm.config(num_drafts=3, async_scheduling=is_ahead, max_num_seqs=3))
    lines = Lines()
    recorder = Recorder(lines, scheduler)  # type: ignore[arg-type]
    sizes = st.tuples(st.integers(1, 5), st.integers(1, 12))
    requests = [
        fake_vllm.Request(f"r{number}", list(range(prompt)), most)
        for number, (prompt, most) in enumerate(draw.draw(st.lists(sizes, min_size=1, max_size=5)))
    ]
    for request in requests:
        scheduler.add_request(request)
        recorder.arrived(scheduler, request)
    key_step, step = draw.draw(st.integers(1, 6)), 0
    under_way: deque[Any] = deque()
    while scheduler.requests or under_way:
        lines.wants_key = (step := step + 1) == key_step
        if not is_ahead:
            for request in scheduler.running:
                first, right = len(request.all_token_ids), draw.draw(st.integers(0, 3))
                request.spec_token_ids = [*range(first, first + right), *[900] * draw.draw(st.integers(0, 2))]
        recorder.before(scheduler)
        output = scheduler.schedule()
        recorder.scheduled(scheduler, output, step, step + 0.1)
        if output.num_scheduled_tokens:
            under_way.append(output)
        if len(under_way) > is_ahead or not output.num_scheduled_tokens:
            output = under_way.popleft()
            rights = (
                {} if not is_ahead else {name: draw.draw(st.integers(0, 3)) for name in scheduler.requests}
            )
            said = fake_vllm.answer(scheduler, output, rights)
            recorder.answered(output, said)
            recorder.updated(
                scheduler, (output, said, scheduler.update_from_output(output, said)), step, step
            )
    assert not recorder.num_faults
    return lines.lines, requests


def check(records: list[Record], requests: list[fake_vllm.Request]) -> None:
    ledger, _, _ = told(records)
    for request in requests:
        story = ledger[request.request_id]
        assert story.output_token_ids == request.all_token_ids[request.num_prompt_tokens :]
    stored: dict[str, int] = {}
    for record in steps_of(records):
        for segment in record.segments:
            at, drafts = segment.position, segment.drafts
            assert at == stored.get(segment.request_id, at) and segment.kv_len == at + segment.q_len
            stored[segment.request_id] = at + segment.num_kept
            if segment.kind == "dead":  # it ended when this was under way already
                assert ledger[segment.request_id].is_finished_at(record.step - 1)
                assert not segment.outputs and not drafts
                continue
            # The fake model's token at a position is the position's number.
            stands = segment.q_len - (drafts.wasted if drafts else 0)
            assert segment.token_ids[:stands] == tuple(range(at, at + stands))
            gained = at + stands - (drafts.used if drafts else 0)
            assert segment.outputs == tuple(range(gained, gained + len(segment.outputs)))
        assert all(slot.num_computed_tokens == stored[slot.request_id] for slot in record.slots)
        assert record.tokens.total == sum(segment.q_len for segment in record.segments)
        assert record.tokens.recomputed == 0


@given(draw=st.data(), is_ahead=st.booleans())
def test_whatever_is_accepted_nothing_is_lost_or_told_twice(draw: st.DataObject, is_ahead: bool) -> None:
    lines, requests = run(draw, is_ahead=is_ahead)
    check(folded(lines, VllmFold()), requests)


@given(draw=st.data(), is_ahead=st.booleans())
def test_a_reader_that_comes_while_drafts_are_under_way_misses_nothing(
    draw: st.DataObject, is_ahead: bool
) -> None:
    lines, requests = run(draw, is_ahead=is_ahead)
    place = next((n for n, line in enumerate(lines) if isinstance(line, Key)), None)
    if place is not None:
        alive = {line.id for line in lines[place].requests}  # type: ignore[union-attr]
        records = folded([HEADER, *lines[place:]], VllmFold())
        check(records, [request for request in requests if request.request_id in alive])


def test_the_scheduler_in_the_server_tells_what_was_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "steps.jsonl"
    fake_vllm.install(monkeypatch)
    monkeypatch.setenv("CBTUI_VLLM_STREAM", str(path))
    module = importlib.import_module("cbtui_vllm.scheduler")
    scheduler = module.RecordingScheduler(fake_vllm.config(num_drafts=3), kv_cache_config=None)
    request = fake_vllm.Request("r0", [0, 1, 2], 9)
    scheduler.add_request(request)
    fake_vllm.turn(scheduler)
    request.spec_token_ids = [4, 900, 900]
    fake_vllm.turn(scheduler)
    scheduler.shutdown()
    lines = [vllm_lines.decode(line) for line in path.read_bytes().splitlines()]
    assert isinstance(lines[0], Header) and lines[0].drafts == 3
    (_, drafted), (_, said) = (
        [one for one in lines if isinstance(one, kind)] for kind in (Scheduled, Output)
    )
    assert drafted.drafts == {0: (4, 900, 900)} and drafted.rows == ((0, 4, 3),)  # type: ignore[union-attr]
    assert said.out == ((0, (4, 5)),) and said.rej == ((0, 2),)  # type: ignore[union-attr]


# -- what cannot be made to happen at will ----------------------------------------------------------


def drafting(*more: Line) -> list[StepRecord]:
    """A request of 3 tokens, fed, then `more`."""
    arrived = vllm_lines.Arrived(0.5, 0, "r0", 3, 9, (10, 11, 12))
    first = Scheduled(1, 1.0, 0.01, 1, 0, ((0, 3, 0),), tables={0: (1,)})
    return steps_of(folded([HEADER, arrived, first, *more], VllmFold()))


def scheduled(step: int, count: int, start: int, drafts: tuple[int, ...] = (), **more: Any) -> Scheduled:
    told = {0: drafts} if drafts else {}
    return Scheduled(step, float(step), 0.01, 1, 0, ((0, count, start),), drafts=told, **more)


def output(step: int, *tokens: int, rejected: int = 0, **more: Any) -> Output:
    out = ((0, tokens),) if tokens else ()
    return Output(step, step + 0.5, 0.01, out, rej=((0, rejected),) if rejected else (), **more)


def test_drafts_become_outputs_as_far_as_they_were_right() -> None:
    _, step, after = drafting(
        output(1, 20),
        scheduled(2, 4, 3, (21, 22, 90)),
        output(2, 21, 22, 23, rejected=1),
        scheduled(3, 1, 6),
        output(3, 24),
    )
    (segment,) = step.segments
    assert (segment.kind, segment.token_ids) == ("decode", (20, 21, 22, 90))
    assert segment.drafts == Drafts(fed=3, accepted=2, used=2)
    assert (segment.outputs, segment.sampled, segment.num_kept) == ((21, 22, 23), 23, 3)
    assert step.tokens == TokenCounts(decode=3, rejected=1)
    assert step.slots[0].num_computed_tokens == 6
    assert after.segments[0].token_ids == (23,) and after.segments[0].drafts is None


def test_a_request_may_end_among_its_drafts() -> None:
    _, step = drafting(
        output(1, 20),
        scheduled(2, 4, 3, (21, 22, 90)),
        output(2, 21, rejected=1, end=((0, "stop"),)),
    )
    (segment,) = step.segments
    assert segment.drafts == Drafts(fed=3, accepted=2, used=1)
    assert (segment.outputs, segment.sampled) == ((21,), None)
    assert step.tokens == TokenCounts(decode=2, rejected=2)
    assert step.events.finished[0].num_output_tokens == 2


def test_a_step_scheduled_ahead_lies_further_back_by_what_was_rejected() -> None:
    unknown = (UNKNOWN_TOKEN,) * 3
    _, second, third = drafting(
        scheduled(2, 4, 3, unknown),
        output(1, 20),
        scheduled(3, 4, 7, unknown),
        output(2, 21, 22, rejected=2),
        output(3, 23, rejected=3),
    )
    assert second.segments[0].token_ids == (20, 21, UNKNOWN_TOKEN, UNKNOWN_TOKEN)
    assert (third.segments[0].position, third.segments[0].token_ids[0]) == (5, 22)
    assert third.slots[0].num_computed_tokens == 6


def test_what_comes_after_giving_way_does_not_lie_further_back() -> None:
    unknown = (UNKNOWN_TOKEN,) * 3
    *_, last = drafting(
        output(1, 20),
        scheduled(2, 4, 3, unknown),
        Scheduled(0, 2.1, 0.01, 0, 1, pre=(0,)),
        scheduled(3, 4, 0, tables={0: (1,)}),
        output(2, 21, 22, rejected=2),
        output(3, 23),
    )
    assert (last.segments[0].position, last.events.preempted[0].lost_tokens) == (0, 5)
    assert last.events.admitted[0].resumed


def test_a_step_whose_request_gave_way_gains_nothing() -> None:
    _, step = drafting(output(1, 20), scheduled(2, 4, 3, (21, 22, 23)), output(2))
    assert step.segments[0].outputs == () and step.tokens == TokenCounts(decode=1, rejected=3)


def test_a_prompts_last_token_may_have_places_for_drafts_that_are_not_there() -> None:
    """vLLM gives every row the same width where it can: the places are rejected, whatever stands there."""
    first = Scheduled(1, 1.0, 0.01, 1, 0, ((0, 4, 2),), {0: (-1, -1, -1)}, {0: (1,)})
    arrived = vllm_lines.Arrived(0.5, 0, "r0", 3, 9, (10, 11, 12))
    (step,) = steps_of(folded([HEADER, arrived, first, output(1, 20, rejected=3)], VllmFold()))
    (segment,) = step.segments
    assert (segment.kind, segment.token_ids, segment.outputs) == ("prefill", (12, -1, -1, -1), (20,))
    assert step.tokens == TokenCounts(prompt=1, rejected=3)
    assert step.slots[0].num_computed_tokens == 3 and step.events.admitted[0].num_cached_tokens == 2


def test_tokens_of_one_step_come_together() -> None:
    lines = [
        output(1, 20),
        scheduled(2, 3, 3, (21, 22)),
        output(2, 21, 22, 23),
        scheduled(3, 1, 6),
        output(3, 24, end=((0, "stop"),)),
    ]
    arrived = vllm_lines.Arrived(0.5, 0, "r0", 3, 9, (10, 11, 12))
    first = Scheduled(1, 1.0, 0.01, 1, 0, ((0, 3, 0),), tables={0: (1,)})
    ledger, metrics, totals = told(folded([HEADER, arrived, first, *lines], VllmFold()))
    story = ledger["r0"]
    assert story.token_steps == [1, 2, 2, 2, 3] and story.tokens_at(2) == range(1, 4)
    assert story.outputs_at(2) == [20, 21, 22, 23]
    assert story.gaps_s() == pytest.approx([1.0, 1.0]) and story.tpot_s == pytest.approx(0.5)
    assert totals.between_tokens_s.count == 2 and totals.between_tokens_s.sum == pytest.approx(2.0)
    assert metrics.snapshot().itl_p50_s == pytest.approx(1.0)
    assert metrics.snapshot().num_output_tokens == 5


def test_drafts_that_do_not_add_up_are_no_record() -> None:
    _, step = drafting(output(1, 20), scheduled(2, 3, 3, (21, 22)), output(2, 21, 22, 23))
    for drafts in (Drafts(3, 0, 0), Drafts(2, 1, 2), Drafts(2, 3, 1), Drafts(2, 0, -1)):
        segment = msgspec.structs.replace(step.segments[0], drafts=drafts)
        spoilt = msgspec.structs.replace(step, segments=(segment,))
        soundness = Soundness()
        soundness._known = {"r0"}
        assert "drafts" in soundness.flaw(spoilt)


def test_a_recorder_that_tells_no_drafts_is_not_followed() -> None:
    assert not unfit(HEADER)
    assert "too old" in unfit(msgspec.structs.replace(HEADER, drafts=0))


def test_what_a_server_that_is_ahead_does_not_know_is_said() -> None:
    assert not provenance_of(HEADER, "").why_inferred("drafts")
    assert provenance_of(msgspec.structs.replace(HEADER, async_scheduling=True), "").why_inferred("drafts")


def test_segments_without_drafts_are_as_they_were() -> None:
    segment = Segment("a", 0, "decode", 0, 0, 1, 0, 5, 4, (7,), (), sampled=8)
    assert (segment.outputs, segment.num_kept, segment.fate(0)) == ((8,), 1, None)
    assert msgspec.structs.replace(segment, sampled=None).outputs == ()
