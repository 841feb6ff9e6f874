"""Blocks with the same token prefix are shared, counted and given up in order."""

from __future__ import annotations

import pytest
from desk import Table, fed
from oracle import solo_outputs
from scenario import FailingRunner

from engine.scheduling.modes import MODES
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics


def hits(table: Table) -> list[int]:
    return [a.num_cached_tokens for r in table.records for a in r.events.admitted]


def right(table: Table) -> bool:
    return all(r.output_token_ids == solo_outputs(r.prompt_token_ids, r.params) for r in table.requests)


@pytest.mark.parametrize(
    ("shared", "own", "cached"),
    [(3, 5, 0), (4, 1, 4), (4, 9, 4), (7, 1, 4), (8, 1, 8), (9, 1, 8), (12, 4, 12)],
)
def test_full_blocks_of_a_shared_prefix_hit_and_one_token_less_does_not(
    shared: int, own: int, cached: int
) -> None:
    table = Table(block_size=4, prefix_caching=True, max_num_seqs=2)
    table.ask([*range(shared), *[90] * own], 2)
    table.step()
    second = table.ask([*range(shared), *[91] * own], 2)
    record = table.step()
    assert hits(table) == [0, cached]
    assert fed(record)[second.request_id] == shared + own - cached
    assert record.events.blocks_shared == cached // 4
    table.run()
    assert right(table)


@pytest.mark.parametrize(("length", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8)])
def test_the_same_prompt_again_computes_at_least_its_last_token(length: int, cached: int) -> None:
    table = Table(block_size=4, prefix_caching=True)
    table.ask(list(range(length)), 1)
    table.run()
    again = table.ask(list(range(length)), 3)
    assert fed(table.step()) == {again.request_id: length - cached}
    table.run()
    assert hits(table) == [0, cached] and right(table)


def test_it_is_off_by_default() -> None:
    table = Table(block_size=4)
    table.ask(list(range(9)), 1), table.run()
    table.ask(list(range(9)), 1), table.run()
    assert hits(table) == [0, 0] and table.records[-1].cached_blocks == 0


def test_two_equal_prompts_in_one_step_share_nothing_and_the_third_hits() -> None:
    table = Table(block_size=4, prefix_caching=True)
    table.ask(list(range(9)), 3), table.ask(list(range(9)), 3)
    table.step()
    table.ask(list(range(9)), 3)
    table.run()
    assert hits(table) == [0, 0, 8] and right(table)


def test_a_block_enters_the_index_only_after_the_forward_that_filled_it() -> None:
    table = Table(FailingRunner({1}), block_size=4, prefix_caching=True)
    table.ask(list(range(9)), 3)
    assert table.step().failed
    assert table.records[-1].cached_blocks == 0
    table.requests.clear()
    table.ask(list(range(9)), 3)
    table.run()
    assert hits(table) == [0, 0] and right(table)


def test_a_chunk_shares_the_blocks_it_filled_and_no_more() -> None:
    table = Table(mode="chunked", block_size=4, prefix_caching=True, max_num_batched_tokens=10)
    table.ask(list(range(30)), 1)
    table.step()
    record = table.step()
    table.ask(list(range(30)), 1)
    table.step()
    assert record.segments[0].position + record.segments[0].q_len == 20
    table.run()
    # 30 tokens are fed when it enters, in the third step after the last chunk: 28 of them in full blocks.
    assert hits(table)[1] in (20, 28) and right(table)


def test_the_least_recently_used_prefix_is_given_up_its_end_first() -> None:
    table = Table(block_size=4, num_blocks=6, prefix_caching=True, max_num_seqs=1)
    first, second = list(range(9)), list(range(50, 59))
    table.ask(first, 1), table.run()
    table.ask(second, 1), table.run()
    assert table.records[-1].cached_blocks == 4
    third = table.ask(list(range(100, 112)), 1)
    table.run()  # three blocks: two free ones, and the end of the first prompt's prefix
    assert sum(r.events.blocks_evicted for r in table.records) == 1
    table.ask(first, 1), table.run()
    assert hits(table) == [0, 0, 0, 4] and right(table) and third.num_output_tokens == 1


def test_a_preempted_request_finds_what_nobody_has_taken_meanwhile() -> None:
    table = Table(block_size=2, num_blocks=8, max_num_seqs=2, prefix_caching=True)
    table.ask([1, 2, 3, 4], 8), table.ask([50, 51, 52, 53], 8)
    table.run()
    (gone,) = [p for r in table.records for p in r.events.preempted]
    (back,) = [a for r in table.records for a in r.events.admitted if a.resumed]
    assert gone.request_id == back.request_id == "r1" and back.num_cached_tokens > 0
    assert sum(r.tokens.recomputed for r in table.records) == gone.lost_tokens - back.num_cached_tokens
    assert right(table)


def test_after_a_restart_of_the_model_no_old_block_is_found() -> None:
    table = Table(block_size=4, prefix_caching=True)
    table.ask(list(range(9)), 6)
    table.step(2)
    table.engine.reset(2, "the model process was started again")
    table.run()
    assert hits(table) == [0, 0] and right(table)


def test_switched_off_it_forgets_and_what_is_shared_stays_right() -> None:
    table = Table(block_size=4, prefix_caching=True)
    table.ask(list(range(12)), 9)
    table.step()
    table.ask(list(range(12)), 9)
    table.step()
    table.set(prefix_caching=False)
    table.ask(list(range(12)), 3)
    record = table.step()
    (change,) = record.events.changed
    assert (change.name, change.before, change.after) == ("prefix_caching", "True", "False")
    table.set(prefix_caching=True)
    table.step()
    table.ask(list(range(12)), 3)
    table.run()
    assert hits(table) == [0, 8, 0, 8] and right(table)
    assert table.engine.kv.pool.num_free == table.engine.config.num_blocks


@pytest.mark.parametrize("mode", MODES)
def test_outputs_are_the_same_with_and_without_in_every_mode(mode: str) -> None:
    outputs = []
    for prefix_caching in (False, True):
        table = Table(mode=mode, block_size=4, num_blocks=14, prefix_caching=prefix_caching)
        for own in range(6):
            table.ask([*range(10), own], 5)
        table.run()
        outputs.append([r.output_token_ids for r in table.requests])
        assert right(table)
    assert outputs[0] == outputs[1]


def test_hits_are_counted_by_request_and_in_all() -> None:
    table = Table(block_size=4, prefix_caching=True)
    ledger = Ledger()
    metrics = Metrics(ledger)
    for _ in range(3):
        table.ask(list(range(10)), 2)
        for record in table.run():
            ledger.apply(record)
            metrics.apply(record)
    assert [s.num_cached_tokens for s in ledger.stories.values()] == [0, 8, 8]
    snapshot = metrics.snapshot()
    assert snapshot.prefix_hit_rate == 8 / 10
    assert [run.cached_tokens for run in metrics.runs] == [0, 8, 8]


def test_stored_tokens_are_counted_once_however_many_share_them() -> None:
    table = Table(block_size=4, num_blocks=6, prefix_caching=True, max_num_seqs=4)
    table.ask(list(range(9)), 9)
    table.step()
    for _ in range(3):
        table.ask(list(range(9)), 2)
    record = table.step()
    assert len(record.segments) == 4
    assert record.kv_tokens == 10 + 3 * 1 <= 6 * 4
