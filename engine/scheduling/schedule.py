"""What the scheduler decides and what comes of it: one step's schedule, one step's outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.request import Request
from engine.step.plan import Layout


@dataclass(slots=True)
class HeldSlot:
    """The slot of a finished request that static batching keeps until the wave ends; not a request.

    Each step it feeds its last token again at its last position: the full cost of a row, no growth. Its
    blocks stay frozen, unless a running request needs them (`has_blocks` False then).
    """

    request: Request
    slot: int
    held_steps: int = 0
    has_blocks: bool = True

    @property
    def token_id(self) -> int:
        position = self.request.num_computed_tokens
        return self.request.tokens(position, position + 1)[0]


class Entered(NamedTuple):
    """A request that entered a slot: whether it resumes after a preemption, and how many of its tokens
    were there already in shared blocks."""

    request: Request
    slot: int
    resumed: bool
    num_cached_tokens: int


class GaveWay(NamedTuple):
    """A request that was preempted out of a slot, the computed tokens it lost, and for want of what:
    `kv_blocks`, or `slots` when there are fewer of them than before."""

    request: Request
    slot: int
    lost_tokens: int
    reason: str


@dataclass(slots=True)
class Schedule:
    """One step as decided, not yet run.

    Attributes:
        counts: tokens for each scheduled request, by request id.
        num_rows, num_tokens, longest: of all rows so far, held slots included.
        rows: scheduled requests and held slots in slot order.
        admitted: who entered.
        preempted: who gave way.
        released: slots that became free before the step.
        blocked: why the head of the queue did not enter: '', no_free_slot, token_budget, kv_blocks, wave,
            draining.
    """

    layout: Layout
    counts: dict[str, int] = field(default_factory=dict)
    num_rows: int = 0
    num_tokens: int = 0
    longest: int = 0
    rows: list[Request | HeldSlot] = field(default_factory=list)
    admitted: list[Entered] = field(default_factory=list)
    preempted: list[GaveWay] = field(default_factory=list)
    released: list[tuple[Request, int]] = field(default_factory=list)
    blocked: str = ""

    def add(self, request_id: str, count: int) -> None:
        """Give a request so many tokens in this step."""
        self.counts[request_id] = count
        self.num_rows += 1
        self.num_tokens += count
        self.longest = max(self.longest, count)

    def drop(self, request_id: str) -> None:
        """Take a request's tokens back; one that has none is no fault."""
        count = self.counts.pop(request_id, 0)
        if count:
            self.num_rows -= 1
            self.num_tokens -= count
            # A held slot feeds one token, and so does every request at least.
            self.longest = max(self.counts.values(), default=min(1, self.num_rows))

    @property
    def row_counts(self) -> list[int]:
        return [1 if isinstance(row, HeldSlot) else self.counts[row.request_id] for row in self.rows]


@dataclass(slots=True)
class Outcome:
    """What a step or an abort ended: finished requests and freed slots."""

    finished: list[Request] = field(default_factory=list)
    released: list[tuple[Request, int]] = field(default_factory=list)
    barrier: bool = False
