from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.request import Request, RequestStatus, SamplingParams
from engine.scheduling.policies.fcfs import FirstComeFirstServed
from engine.scheduling.waiting import WaitingQueue


class ShortestPrompt(FirstComeFirstServed):
    def order_key(self, request: Request) -> tuple[float, ...]:
        return (request.num_prompt_tokens,)


def request(index: int, length: int = 1) -> Request:
    return Request(f"r{index}", index, [0] * length, SamplingParams())


def ids(requests: list[Request]) -> list[int]:
    return [r.index for r in requests]


def drain(queue: WaitingQueue) -> list[int]:
    return [queue.pop().index for _ in range(len(queue))]


@given(st.lists(st.integers(1, 5), max_size=30), st.sets(st.integers(0, 29)), st.integers(0, 40))
def test_order_is_the_policys_dropped_ones_are_gone_and_first_agrees_with_pop(
    lengths: list[int], dropped: set[int], count: int
) -> None:
    queue = WaitingQueue(ShortestPrompt())
    requests = [request(i, length) for i, length in enumerate(lengths)]
    for one in requests:
        queue.add(one)
    for one in requests:
        if one.index in dropped:
            queue.drop(one)
    expected = ids(
        sorted((r for r in requests if r.index not in dropped), key=lambda r: (r.num_prompt_tokens, r.index))
    )
    assert len(queue) == len(expected)
    assert ids(queue.first(count)) == expected[:count]
    head = queue.peek()
    assert (head.index if head else None) == (expected[0] if expected else None)
    assert drain(queue) == expected


def test_preempted_requests_go_before_all_others_latest_first() -> None:
    queue = WaitingQueue(FirstComeFirstServed())
    for index in (0, 1, 2):
        queue.add(request(index))
    queue.add_preempted(request(8))
    queue.add_preempted(request(7))
    assert ids(queue.first(9)) == [7, 8, 0, 1, 2]
    assert drain(queue) == [7, 8, 0, 1, 2]


def test_a_preempted_request_can_be_dropped() -> None:
    queue = WaitingQueue(FirstComeFirstServed())
    back = request(5)
    back.status = RequestStatus.PREEMPTED
    queue.add_preempted(back)
    queue.add(request(6))
    queue.drop(back)
    assert drain(queue) == [6]


def test_reordering_follows_the_new_policy_and_forgets_the_dropped() -> None:
    queue = WaitingQueue(FirstComeFirstServed())
    requests = [request(0, 3), request(1, 1), request(2, 2), request(3, 9)]
    for one in requests:
        queue.add(one)
    queue.drop(requests[2])
    queue.reorder(ShortestPrompt())
    assert drain(queue) == [1, 0, 3]
