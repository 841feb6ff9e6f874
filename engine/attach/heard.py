"""Tokens of prompts sent from here, laid into the steps that made them. Pure.

A step makes one token of every request that decodes, so a request's next token is of the step after its
last one; when tokens were heard says in which step a request is new, and which one was kept out of some.
A server sends all that a step made at once; what is late was held up on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

#: A request's first token may be heard this much before the others of its step, seconds.
EARLY_S = 0.01
#: How long a step is waited with for tokens nobody counts on, for those of a request that may be new in it
#: (its first answer takes longer), and for those that should be in it, seconds.
SETTLED_MOST_S, NEW_S, LATE_LEAST_S, LATE_MOST_S = 0.05, 0.15, 0.25, 1.0
#: The last gaps between two tokens of one request, which say how long a step takes: so many, and a guess.
GAPS_KEPT, GAP_S = 64, 0.03


class Heard(NamedTuple):
    """Output token `number` (from 1) of a request; `is_last`: as far as that is known."""

    at_s: float
    request_id: str
    number: int
    is_last: bool = False

    @property
    def is_first(self) -> bool:
        return self.number == 1


@dataclass(slots=True)
class HeardStep:
    """What was heard of a step; `at_s`: the first of it."""

    at_s: float
    tokens: list[Heard] = field(default_factory=list)


class HeardTokens:
    """Takes tokens in, gives steps out once nothing more is expected of them."""

    def __init__(self) -> None:
        #: Tokens that are in no step yet.
        self._fresh: list[Heard] = []
        #: Steps that are not given out yet, and the number of the first of them.
        self._steps: deque[HeardStep] = deque()
        self._number = 0
        #: By request that has not ended: the number of the step its next token is of, and when its last came.
        self._next: dict[str, int] = {}
        self._last_s: dict[str, float] = {}
        self._gaps: deque[float] = deque((GAP_S,), maxlen=GAPS_KEPT)

    @property
    def first_s(self) -> float | None:
        """When the first token was heard that was not given out yet; None: there is none."""
        times = [step.at_s for step in self._steps] + [token.at_s for token in self._fresh]
        return min(times, default=None)

    def add(self, tokens: Iterable[Heard]) -> None:
        """Tokens heard since the last call; those of one request in their order."""
        self._fresh += tokens

    def ended(self, request_id: str) -> None:
        """No more of a request will be heard."""
        last = max((n for n, one in enumerate(self._fresh) if one.request_id == request_id), default=None)
        if last is not None:
            self._fresh[last] = self._fresh[last]._replace(is_last=True)
        else:
            self._leave(request_id)

    def _leave(self, request_id: str) -> None:
        self._next.pop(request_id, None)
        self._last_s.pop(request_id, None)

    def take(self, upto_s: float, wait_s: float = 0.0) -> list[HeardStep]:
        """The steps of which all was heard by then, or waited for long enough, in their order.

        Args:
            wait_s: wait with each step at least so long.
        """
        keyed = _keyed(self._fresh)
        self._lay([token for key_s, token in keyed if key_s <= upto_s])
        self._fresh = [token for key_s, token in keyed if key_s > upto_s]
        taken = []
        while self._steps and self._is_whole(self._steps[0], upto_s - wait_s):
            taken.append(self._steps.popleft())
            self._number += 1
        return taken

    def _lay(self, tokens: Iterable[Heard]) -> None:
        for token in tokens:
            gap = token.at_s - self._last_s.get(token.request_id, token.at_s)
            if gap > 0:
                self._gaps.append(gap)
            place = self._place(token)
            if place == len(self._steps):
                self._steps.append(HeardStep(token.at_s))
            self._steps[place].tokens.append(token)
            self._next[token.request_id] = self._number + place + 1
            self._last_s[token.request_id] = token.at_s
            if token.is_last:
                self._leave(token.request_id)

    def _place(self, token: Heard) -> int:
        """Which of the steps a token is of; as many as there are: of a new one."""
        end = len(self._steps)
        place = max(0, self._next.get(token.request_id, 0) - self._number)
        if not token.is_first and (place >= end or self._is_near(token, place, self._late_s)):
            return min(place, end)
        # It is new, or was kept out of some steps: while others decode, the newest step has tokens of theirs.
        near_s = self._late_s if self._next else self._settled_s
        return end - 1 if end and self._is_near(token, end - 1, near_s) else end

    def _is_near(self, token: Heard, place: int, near_s: float) -> bool:
        return token.at_s - self._steps[place].at_s <= near_s

    def _is_whole(self, step: HeardStep, upto_s: float) -> bool:
        age_s = upto_s - step.at_s
        is_awaited = any(number <= self._number for number in self._next.values())
        return age_s >= EARLY_S + (self._late_s if is_awaited else self._settled_s)

    @property
    def _step_s(self) -> float:
        return median(self._gaps)

    @property
    def _settled_s(self) -> float:
        return min(SETTLED_MOST_S, self._step_s / 2)

    @property
    def _late_s(self) -> float:
        return min(LATE_MOST_S, max(LATE_LEAST_S, 2 * self._step_s))


def _keyed(tokens: Iterable[Heard]) -> list[tuple[float, Heard]]:
    """Tokens by when they were heard, first ones a little later; those of one request stay in their order."""
    keyed: list[tuple[float, Heard]] = []
    last_s: dict[str, float] = {}
    for token in tokens:
        key_s = max(token.at_s + EARLY_S * token.is_first, last_s.get(token.request_id, token.at_s))
        last_s[token.request_id] = key_s
        keyed.append((key_s, token))
    return sorted(keyed, key=lambda one: one[0])
