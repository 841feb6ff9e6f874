"""Chunked prefill: a prompt takes what the decodes leave of the budget. Budgets to the token."""

from __future__ import annotations

from itertools import pairwise

import pytest
from desk import Table, fed
from oracle import solo_outputs

BUDGET = 12


@pytest.mark.parametrize(
    ("length", "whole", "chunked"),
    [
        (BUDGET - 2, [10], [10]),
        (BUDGET - 1, [11], [11]),
        # Exactly the budget: it fits an empty step, so unchunked it waits for one.
        (BUDGET, [0, 0, 0, 12], [11, 1]),
        # One more: no step could take it whole, so it is cut in every mode.
        (BUDGET + 1, [11, 2], [11, 2]),
    ],
)
def test_a_prompt_about_as_long_as_the_budget_beside_a_decoding_request(
    length: int, whole: list[int], chunked: list[int]
) -> None:
    for mode, pieces in (("continuous", whole), ("chunked", chunked)):
        table = Table(mode=mode, max_num_batched_tokens=BUDGET)
        table.ask([1, 2, 3], 4)
        table.step()
        second = table.ask(list(range(length)), 2)
        records = table.run()
        given = [fed(record).get(second.request_id, 0) for record in records[: len(pieces)]]
        assert given == pieces, mode
        assert second.output_token_ids == solo_outputs(second.prompt_token_ids, second.params)


@pytest.mark.parametrize("length", [BUDGET - 1, BUDGET, BUDGET + 1])
def test_alone_a_prompt_is_cut_only_if_it_exceeds_the_budget(length: int) -> None:
    for mode in ("continuous", "chunked", "static", "continuous-padded"):
        table = Table(mode=mode, max_num_batched_tokens=BUDGET)
        table.ask(list(range(length)), 1)
        pieces = [record.segments[0].q_len for record in table.run()]
        assert pieces == ([length] if length <= BUDGET else [BUDGET, length - BUDGET])


def positions_between_tokens(mode: str, budget: int) -> list[int]:
    """Token positions computed from one token of a decoding request to its next, while a prompt of 900
    tokens comes in: its inter-token latency, in work rather than in time."""
    table = Table(mode=mode, max_num_batched_tokens=budget)
    decoding = table.ask([1, 2, 3], 40)
    table.step(3)
    long = table.ask([place % 250 for place in range(900)], 3)
    records = table.run()
    gaps, since = [], 0
    for record in records:
        since += record.tokens.total
        if any(s.request_id == decoding.request_id and s.sampled is not None for s in record.segments):
            gaps.append(since)
            since = 0
    assert long.output_token_ids == solo_outputs(long.prompt_token_ids, long.params)
    assert len(gaps) == 37
    return gaps


def test_a_long_prompt_no_longer_makes_a_decoding_request_wait() -> None:
    assert max(positions_between_tokens("continuous", 2048)) == 901
    chunked = positions_between_tokens("chunked", 64)
    assert max(chunked) == 64
    assert sum(gap == 64 for gap in chunked) == 900 // 63


def test_a_decoding_request_gets_a_token_in_every_step_while_a_prompt_is_fed() -> None:
    table = Table(mode="chunked", max_num_batched_tokens=64)
    decoding = table.ask([1, 2, 3], 40)
    table.step(3)
    table.ask([place % 250 for place in range(900)], 3)
    steps = [
        r.step for r in table.run() for s in r.segments if s.request_id == decoding.request_id and s.sampled
    ]
    assert [b - a for a, b in pairwise(steps)] == [1] * (len(steps) - 1)


def test_several_prompts_share_what_the_decodes_leave_in_order_of_arrival() -> None:
    table = Table(mode="chunked", max_num_batched_tokens=10, max_num_seqs=3)
    first = table.ask([1, 2], 9)
    table.step()
    second, third = table.ask(list(range(12)), 1), table.ask(list(range(30, 37)), 1)
    assert fed(table.step()) == {first.request_id: 1, second.request_id: 9}
    assert table.records[-1].waiting[0].reason == "token_budget"
    assert fed(table.step()) == {first.request_id: 1, second.request_id: 3, third.request_id: 6}
    assert fed(table.step()) == {first.request_id: 1, third.request_id: 1}


def test_switching_to_chunked_lets_a_waiting_prompt_begin_at_once() -> None:
    table = Table(max_num_batched_tokens=10)
    table.ask([1, 2], 20)
    table.step()
    second = table.ask(list(range(10)), 1)
    assert second.request_id not in fed(table.step())
    table.engine.set_mode("chunked")
    assert fed(table.step())[second.request_id] == 9


def test_a_half_fed_prompt_goes_on_by_the_new_modes_rule() -> None:
    table = Table(mode="chunked", max_num_batched_tokens=10)
    table.ask([1, 2], 20)
    table.step()
    second = table.ask(list(range(25)), 1)
    table.step()
    table.engine.set_mode("continuous")
    table.set(max_num_batched_tokens=100)
    assert fed(table.step())[second.request_id] == 25 - 9
    table.run()
    assert second.output_token_ids == solo_outputs(second.prompt_token_ids, second.params)
