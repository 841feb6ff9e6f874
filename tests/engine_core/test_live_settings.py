"""Settings that change between steps, above all fewer slots than there are running requests."""

from __future__ import annotations

import pytest
from desk import Table, fed
from oracle import solo_outputs

from engine.stream.ledger import Ledger


def test_the_surplus_is_preempted_where_that_is_asked_for_and_resumes_with_the_same_tokens() -> None:
    table = Table(max_num_seqs=4)
    for number in range(5):
        table.ask([10 * number, 1, 2], 6)
    table.step(2)
    table.set(max_num_seqs=2, preempt_surplus=True)
    record = table.step()
    assert [(p.request_id, p.lost_tokens, p.reason) for p in record.events.preempted] == [
        ("r3", 4, "slots"),
        ("r2", 4, "slots"),
    ]
    assert fed(record) == {"r0": 1, "r1": 1}
    assert [(w.request_id, w.reason, w.preempted) for w in record.waiting] == [
        ("r2", "no_free_slot", True),
        ("r3", "no_free_slot", True),
        ("r4", "no_free_slot", False),
    ]
    assert all(len(r.segments) <= 2 for r in table.run())
    for request in table.requests:
        assert request.output_token_ids == solo_outputs(request.prompt_token_ids, request.params)


def test_the_victim_of_fewer_slots_is_the_policys() -> None:
    table = Table(max_num_seqs=3, policy="shortest-first")
    for max_tokens in (9, 3, 6):
        table.ask([1, 2], max_tokens)
    table.step()
    table.set(max_num_seqs=1, preempt_surplus=True)
    assert [p.request_id for p in table.step().events.preempted] == ["r0", "r2"]


def test_it_is_asked_for_once_and_later_surplus_drains() -> None:
    table = Table(max_num_seqs=3)
    for number in range(3):
        table.ask([number, 1], 9)
    table.step()
    table.set(max_num_seqs=2, preempt_surplus=True)
    table.step()
    table.set(max_num_seqs=3)
    table.step()
    table.set(max_num_seqs=1)
    assert not table.step().events.preempted and len(table.records[-1].segments) == 3


@pytest.mark.parametrize("mode", ["static", "continuous", "chunked"])
def test_a_wave_with_fewer_slots_keeps_its_rules(mode: str) -> None:
    table = Table(mode=mode, max_num_seqs=3)
    for max_tokens in (2, 9, 6, 3):
        table.ask([max_tokens, 1], max_tokens)
    table.step(3)
    table.set(max_num_seqs=1, preempt_surplus=True)
    table.run()
    for request in table.requests:
        assert request.output_token_ids == solo_outputs(request.prompt_token_ids, request.params)


def test_a_preempted_request_keeps_its_outputs_its_ttft_and_its_draws() -> None:
    table = Table(block_size=2, num_blocks=8, max_num_seqs=2)
    table.ask([1, 2, 3, 4], 8)
    victim = table.ask([50, 51, 52, 53], 8, temperature=0.8, seed=5)
    ledger = Ledger()
    ttft, outputs = None, []
    while table.engine.has_work:
        record = table.step()
        ledger.apply(record)
        story = ledger[victim.request_id]
        ttft = ttft if ttft is not None else story.ttft_s
        if record.events.preempted:
            outputs = list(victim.output_token_ids)
            assert outputs and victim.num_computed_tokens == 0
    story = ledger[victim.request_id]
    assert story.num_preemptions == victim.num_preemptions == 1
    assert story.ttft_s == ttft and story.output_token_ids[: len(outputs)] == outputs
    assert victim.output_token_ids == solo_outputs([50, 51, 52, 53], victim.params)
    assert len(story.token_times) == 8
