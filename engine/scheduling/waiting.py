"""The waiting queue: a heap by the policy's key, preempted requests before all others."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import islice

from engine.request import Request
from engine.scheduling.policies import Policy, key_of


class WaitingQueue:
    """Requests not running. Removal of a cancelled one is lazy, so no operation walks the queue."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._preempted: deque[Request] = deque()
        self._heap: list[tuple[tuple[float, ...], int, Request]] = []
        self._dropped: set[str] = set()

    def __len__(self) -> int:
        return len(self._preempted) + len(self._heap) - len(self._dropped)

    def add(self, request: Request) -> None:
        """Enqueue by the policy's key.

        Raises:
            PolicyFault: it gave none; nothing has changed.
        """
        heapq.heappush(self._heap, (key_of(self._policy, request), request.index, request))

    def add_preempted(self, request: Request) -> None:
        """Back to the head: it has waited and worked already."""
        self._preempted.appendleft(request)

    def drop(self, request: Request) -> None:
        """Take a request out wherever it stands."""
        if request in self._preempted:
            self._preempted.remove(request)
        else:
            self._dropped.add(request.request_id)
            if 2 * len(self._dropped) > len(self._heap):
                self._sweep()  # seldom enough to cost nothing, and the dead do not pile up
            self._settle()

    def peek(self) -> Request | None:
        """The next to enter, or None."""
        if self._preempted:
            return self._preempted[0]
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Request:
        """Take the head out.

        Raises:
            IndexError: nobody waits.
        """
        if self._preempted:
            return self._preempted.popleft()
        request = heapq.heappop(self._heap)[2]
        self._settle()
        return request

    def reorder(self, policy: Policy) -> None:
        """Order by another policy's key from now on.

        Raises:
            PolicyFault: it gave none for one of them; the order is as it was.
        """
        self._sweep()
        heap = [(key_of(policy, request), request.index, request) for _, _, request in self._heap]
        heapq.heapify(heap)
        self._policy, self._heap = policy, heap

    def first(self, count: int) -> list[Request]:
        """The first `count` in order, without walking the whole queue."""
        return list(islice(self._in_order(count), count))

    def _in_order(self, count: int) -> Iterator[Request]:
        yield from self._preempted
        # The k smallest of a heap lie on a frontier of at most k nodes: no full sort needed.
        frontier = [(self._heap[0], 0)] if self._heap else []
        while frontier:
            entry, place = heapq.heappop(frontier)
            if entry[2].request_id not in self._dropped:
                yield entry[2]
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(self._heap):
                    heapq.heappush(frontier, (self._heap[child], child))

    def _sweep(self) -> None:
        """Take the dropped out of the heap."""
        self._heap = [entry for entry in self._heap if entry[2].request_id not in self._dropped]
        heapq.heapify(self._heap)
        self._dropped.clear()

    def _settle(self) -> None:
        """Keep a live request at the heap's head."""
        while self._heap and self._heap[0][2].request_id in self._dropped:
            self._dropped.discard(heapq.heappop(self._heap)[2].request_id)
