"""What is known of a recorded vLLM's requests and blocks between two lines: the state the fold keeps.

Holds no records and reads no lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.stream.records import NO_BLOCK


@dataclass(slots=True)
class Followed:
    """A request as far as it was seen.

    Attributes:
        request_id: the server's own.
        tokens: prompt and output ids so far; ids the server does not tell are `UNKNOWN_TOKEN`.
        num_prompt: how many of them are the prompt.
        max_tokens: output tokens at most.
        computed: tokens whose KV is there.
        high_water: most there ever were.
        lane: where it is drawn while it runs; None: it does not.
        table: its block ids, `NO_BLOCK` where a window has left one.
        has_run: it was in a step.
        is_known: a record has said that it arrived.
        is_over: it has ended, and a row of it was scheduled before that.
    """

    request_id: str
    tokens: list[int]
    num_prompt: int
    max_tokens: int
    computed: int = 0
    high_water: int = 0
    lane: int | None = None
    table: list[int] = field(default_factory=list)
    has_run: bool = False
    is_known: bool = False
    is_over: bool = False

    @property
    def num_outputs(self) -> int:
        return len(self.tokens) - self.num_prompt

    def go_back(self, count: int) -> None:
        """So many of its computed tokens were drafts that have been rejected."""
        if self.high_water == self.computed:
            self.high_water -= count
        self.computed -= count


def table_from(told: Iterable[int]) -> list[int]:
    """A table as a line tells it: a number below 0 stands for so many places without a block."""
    table: list[int] = []
    for one in told:
        table += [NO_BLOCK] * -one if one < 0 else [one]
    return table


class Lanes:
    """Which lane a request is drawn in: the row of the batch it entered at, while that lane is free.

    vLLM moves a request to another row when one before it ends; a lane stays.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, wanted: int) -> int:
        """A lane for a request that entered the batch at row `wanted`."""
        lane = wanted
        if lane in self._taken:
            lane = next(number for number in range(len(self._taken) + 1) if number not in self._taken)
        self._taken.add(lane)
        return lane

    def leave(self, lane: int) -> None:
        """Its request has gone."""
        self._taken.discard(lane)

    def clear(self) -> None:
        """All have gone."""
        self._taken.clear()


class Blocks:
    """Who holds which block, counted: what was allocated, freed and shared since the last look.

    A block that several hold is a full one of a common prefix.
    """

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self.num_shared_again = 0
        self.allocated = self.freed = self.shared = 0

    def hold(self, blocks: Iterable[int]) -> None:
        """A request holds more blocks."""
        for block in _real(blocks):
            self._holders[block] += 1
            if self._holders[block] > 1:
                self.num_shared_again += 1
                self.shared += 1
            else:
                self.allocated += 1

    def release(self, blocks: Iterable[int]) -> None:
        """A request gives blocks back."""
        for block in _real(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                self.num_shared_again -= 1
            else:
                del self._holders[block]
                self.freed += 1

    def take_moves(self) -> tuple[int, int, int]:
        """Blocks allocated, freed and shared since the last call."""
        moves = self.allocated, self.freed, self.shared
        self.allocated = self.freed = self.shared = 0
        return moves

    def clear(self) -> None:
        """Nothing is known any more."""
        self._holders.clear()
        self.num_shared_again = 0
        self.take_moves()


def _real(blocks: Iterable[int]) -> Iterator[int]:
    return (block for block in blocks if block != NO_BLOCK)
