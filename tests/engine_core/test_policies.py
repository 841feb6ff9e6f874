"""Who enters first and who gives way, and that a new policy is a few lines."""

from __future__ import annotations

import inspect
import re

import msgspec
import pytest
from desk import Table, fed
from oracle import solo_outputs

from engine.request import Request, SamplingParams
from engine.scheduling import policies
from engine.scheduling.policies import POLICIES, last_in_order, policy_named
from engine.scheduling.policies.priority import STEPS_PER_LEVEL
from engine.scheduling.policies.shortest_first import LONGEST_JOB


def request(index: int, *, max_tokens: int = 10, priority: int = 0, arrival_step: int = 0) -> Request:
    return Request(
        f"r{index}", index, [1], SamplingParams(max_tokens=max_tokens), 0.0, priority, arrival_step
    )


def in_order(policy: str, *requests: Request) -> list[int]:
    chosen = policy_named(policy)
    return [r.index for r in sorted(requests, key=lambda r: (chosen.order_key(r), r.index))]


def test_first_come_first_served_looks_at_nothing_but_arrival() -> None:
    assert in_order("fcfs", request(1, priority=-9), request(0, max_tokens=99), request(2, max_tokens=1)) == [
        0,
        1,
        2,
    ]


def test_lower_priority_numbers_enter_first_and_ties_by_arrival() -> None:
    table = Table(policy="priority", max_num_seqs=1)
    for priority in (1, 0, -1, 0):
        table.ask([1, 2], 1, priority=priority)
    table.run()
    assert table.entered == ["r2", "r1", "r3", "r0"]


def test_waiting_makes_up_for_priority_a_level_at_a_time() -> None:
    late = STEPS_PER_LEVEL
    assert in_order("priority", request(0), request(1, priority=-1, arrival_step=late - 1)) == [1, 0]
    assert in_order("priority", request(0), request(1, priority=-1, arrival_step=late)) == [0, 1]
    assert in_order("priority", request(0), request(1, priority=-1, arrival_step=late + 1)) == [0, 1]


def test_the_shortest_enters_first_and_waiting_makes_up_a_token_a_step() -> None:
    table = Table(policy="shortest-first", max_num_seqs=1)
    for max_tokens in (9, 3, 6):
        table.ask([1, 2], max_tokens)
    table.run()
    assert table.entered == ["r1", "r2", "r0"]
    long = request(0, max_tokens=9)
    assert in_order("shortest-first", long, request(1, max_tokens=3, arrival_step=5)) == [1, 0]
    assert in_order("shortest-first", long, request(1, max_tokens=3, arrival_step=7)) == [0, 1]


def test_beyond_the_longest_job_length_makes_no_difference() -> None:
    endless, long = request(0, max_tokens=10**6), request(1, max_tokens=LONGEST_JOB)
    assert in_order("shortest-first", endless, long) == [0, 1]


def test_a_stream_of_better_requests_does_not_starve_a_worse_one() -> None:
    for policy, worse, better in (
        ("priority", {"priority": 1}, {}),
        ("shortest-first", {"max_tokens": 40}, {"max_tokens": 2}),
    ):
        table = Table(policy=policy, max_num_seqs=1)
        table.ask([1], **{"max_tokens": 2, **worse})
        starved = table.requests[0]
        while starved.slot is None:
            table.ask([2], **{"max_tokens": 2, **better})
            table.step()
            assert len(table.records) < 2 * STEPS_PER_LEVEL + 10, f"{policy} starves"


@pytest.mark.parametrize(
    ("policy", "asks", "victim"),
    [
        ("fcfs", [{}, {}], "r1"),
        ("priority", [{"priority": 1}, {"priority": 0}], "r0"),
        ("priority", [{"priority": 0}, {"priority": 1}], "r1"),
        ("shortest-first", [{"max_tokens": 9}, {"max_tokens": 8}], "r0"),
    ],
)
def test_the_policys_victim_gives_way_and_resumes_with_the_same_tokens(
    policy: str, asks: list[dict[str, int]], victim: str
) -> None:
    table = Table(policy=policy, block_size=2, num_blocks=8, max_num_seqs=2)
    for number, more in enumerate(asks):
        table.ask([50 * number + i for i in range(4)], **{"max_tokens": 8, **more})
    table.run()
    gone = [p for r in table.records for p in r.events.preempted]
    assert [(p.request_id, p.reason) for p in gone] == [(victim, "kv_blocks")]
    for one in table.requests:
        assert one.output_token_ids == solo_outputs(one.prompt_token_ids, one.params)


def test_the_policy_changes_between_steps_and_reorders_who_waits() -> None:
    table = Table(max_num_seqs=1)
    for max_tokens in (2, 9, 3, 6):
        table.ask([1, 2], max_tokens)
    table.step()
    table.set(policy="shortest-first")
    record = table.step()
    (change,) = record.events.changed
    assert (change.name, change.before, change.after) == ("policy", "fcfs", "shortest-first")
    assert record.policy == "shortest-first"
    table.run()
    assert table.entered == ["r0", "r2", "r3", "r1"]


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no policy 'lifo'; there are fcfs, priority, shortest-first"):
        Table(policy="lifo")
    table = Table()
    with pytest.raises(ValueError, match="no policy"):
        table.engine.configure(msgspec.structs.replace(table.engine.config, policy="lifo"))


def test_the_example_in_the_registrys_docstring_is_a_policy() -> None:
    example = re.search(r"(    class .*)\Z", inspect.getdoc(policies) or "", re.DOTALL)
    assert example is not None
    lines = inspect.cleandoc(example[1])
    assert len([line for line in lines.splitlines() if line.strip()]) <= 10
    exec(lines, {"POLICIES": POLICIES, "last_in_order": last_in_order})
    try:
        table = Table(policy="longest-first", max_num_seqs=1)
        for max_tokens in (2, 9, 3):
            table.ask([1, 2], max_tokens)
        table.run()
        assert table.entered == ["r1", "r2", "r0"]
    finally:
        del POLICIES["longest-first"]


def test_priority_does_not_let_a_running_request_be_pushed_out() -> None:
    table = Table(policy="priority", max_num_seqs=1)
    first = table.ask([1, 2], 3, priority=5)
    table.step()
    table.ask([3, 4], 3, priority=-5)
    assert fed(table.step()) == {first.request_id: 1}
