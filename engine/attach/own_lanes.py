"""Prompts sent from here to a server that names nobody: their lanes, and the steps that made their tokens.

Pure.
A lane is taken by a request's first token and free after the step of its last one, as a slot is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from engine.attach.heard import NEW_S, Heard, HeardStep, HeardTokens
from engine.attach.prompts import Own
from engine.attach.seen import Ended, Part, SlotSeen, StepSeen


class OwnLanes:
    """Moved on by what `Own`s say; each of their tokens is in one step, and their steps are in order."""

    def __init__(self) -> None:
        self._heard = HeardTokens()
        #: Tokens of each request that were handed on, and of those, the ones that are in steps.
        self._num_heard: dict[str, int] = {}
        self._num_told: dict[str, int] = {}
        self._lanes: dict[str, SlotSeen] = {}
        #: Lanes that were taken at the same time, at most.
        self.most = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a step may have been made of which nothing was told yet."""
        return bool(self._lanes) or self._heard.first_s is not None

    @property
    def pending_s(self) -> float | None:
        """When the first token was heard that is in no step yet; None: there is none."""
        return self._heard.first_s

    def is_spent(self, own: Own) -> bool:
        """Whether all tokens of a request are in steps."""
        return self._num_told.get(own.request_id, 0) >= len(own.tokens)

    def steps(
        self, owns: Mapping[str, Own], after_s: float, upto_s: float, num_running: int | None
    ) -> list[StepSeen]:
        """The steps made since the last call, as far as all of each was heard.

        Args:
            owns: all prompts sent from here, by request id.
            after_s: where the step before ended.
            upto_s: until when tokens were listened for.
            num_running: requests the server is sure to have run all the time; None: it does not say.

        Returns:
            steps in order; behind them one without parts, if requests ended between two.
        """
        new = []
        for own in owns.values():
            before, last = self._num_heard.get(own.request_id, 0), len(own.heard_s)
            has_ended = bool(own.end)
            for number in range(before + 1, last + 1):
                is_last = has_ended and number == last
                new.append(Heard(own.heard_s[number - 1], own.request_id, number, is_last))
            self._num_heard[own.request_id] = last
            if has_ended and last == before:
                self._heard.ended(own.request_id)
        self._heard.add(new)
        steps = []
        is_awaited = any(not own.tokens and not own.is_over for own in owns.values())
        for heard in self._heard.take(upto_s, NEW_S if is_awaited else 0.0):
            step = self._step(heard, owns, after_s)
            step.is_whole = num_running is not None and num_running <= len(step.parts)
            after_s = step.end_s
            steps.append(step)
            self._leave(step, owns)
        between = StepSeen(after_s, after_s)
        self._leave(between, owns)
        return [*steps, between] if between.ended else steps

    def _step(self, heard: HeardStep, owns: Mapping[str, Own], after_s: float) -> StepSeen:
        tokens = sorted(heard.tokens, key=lambda token: owns[token.request_id].index)
        new = [owns[token.request_id] for token in tokens if token.request_id not in self._lanes]
        for own in new:
            self._enter(own)
        end_s = max(after_s, heard.at_s)
        # Whoever is new in a step was sent before it began.
        start_s = min(end_s, max((after_s, *(own.sent_s for own in new))))
        step = StepSeen(start_s, end_s)
        for token in tokens:
            step.parts.append(_part(self._lanes[token.request_id], token.number))
            self._num_told[token.request_id] = token.number
        return step

    def _enter(self, own: Own) -> None:
        taken = {one.slot for one in self._lanes.values()}
        self._lanes[own.request_id] = SlotSeen(
            slot=next(number for number in count() if number not in taken),
            n_ctx=0,
            is_processing=True,
            task=own.index,
            num_prompt=max(1, own.num_prompt or len(own.prompt_token_ids)),
            max_tokens=own.request.max_tokens,
            seed=own.seed,
        )
        self.most = max(self.most, 1 + max(one.slot for one in self._lanes.values()))

    def _leave(self, step: StepSeen, owns: Mapping[str, Own]) -> None:
        """Requests end in the step of their last token, or where they are found to be over."""
        for request_id, seen in tuple(self._lanes.items()):
            own = owns[request_id]
            if own.end and self.is_spent(own):
                step.ended.append(Ended(seen, len(own.tokens), own.end, True))
                del self._lanes[request_id]


def _part(seen: SlotSeen, number: int) -> Part:
    if number == 1:
        return Part(seen, True, 0, seen.num_prompt, 1, True)
    return Part(seen, False, seen.num_prompt + number - 2, 1, number)
