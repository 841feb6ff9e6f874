"""From looks at `/slots` to the steps between them. Pure.

A llama.cpp server feeds every generating slot one token in every step, and prompts beside them, so slots
move in lockstep: a slot that generated throughout counts the steps. What is between two looks follows from
the counts; where it does not follow (when somebody ended, if nobody else was there to count) the likeliest
is taken, and every step that no look saw by itself is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from engine.attach.seen import Ended, Part, SlotSeen, StepSeen
from engine.stream.records import END_NOT_TOLD

#: Weight of the newest in the mean time of a step.
_NEWEST = 0.2


@dataclass(frozen=True, slots=True)
class _Run:
    """Stretch of one request in one slot between two looks: so many steps, and where they lie.

    `units` are the steps' parts in order; `from_start`: they are the first ones, else the last.
    """

    units: list[Part]
    from_start: bool
    counts_all: bool
    ended: Ended | None = None


class Known(NamedTuple):
    """What somebody knows of a request that has ended: its tokens, and why it ended."""

    num_prompt: int
    num_output: int
    reason: str


#: What is known of the request a slot has or had, if it has ended.
KnownTotal = Callable[[SlotSeen], Known | None]


class StepBuilder:
    """Takes looks in order, gives steps."""

    def __init__(self) -> None:
        self._slots: dict[int, SlotSeen] = {}
        self._at_s = 0.0
        self._last_end_s = 0.0
        self._step_s = 0.0
        #: Requests that came and went between two looks.
        self.num_unseen = 0

    @property
    def slots(self) -> Mapping[int, SlotSeen]:
        """The last look."""
        return self._slots

    @property
    def at_s(self) -> float:
        """When the last look was taken."""
        return self._at_s

    @property
    def step_s(self) -> float:
        """About how long a step takes; 0: not known."""
        return self._step_s

    def begin(self, at_s: float, slots: Sequence[SlotSeen]) -> None:
        """The first look, or the first after a gap over which nothing is to be told."""
        self._slots = {one.slot: one for one in slots}
        self._at_s = self._last_end_s = at_s

    def look(
        self,
        at_s: float,
        slots: Sequence[SlotSeen],
        known: KnownTotal = lambda _: None,
        counted: int | None = None,
    ) -> list[StepSeen]:
        """The steps since the look before.

        Args:
            at_s: when it was taken.
            counted: how many there were, where somebody counted; only asked for where no slot did.
            known: what is known of a request's end.
        """
        before = self._slots
        after = {one.slot: _steady(before.get(one.slot), one) for one in slots}
        elapsed = at_s - self._last_end_s
        guess = max(1, round(elapsed / self._step_s)) if self._step_s else 1
        runs: list[_Run] = []
        for number in sorted(before.keys() & after.keys()):
            runs += self._unseen(before[number], after[number], known)
        going = [_going(before.get(n), now) for n, now in after.items() if now.is_processing]
        runs += [run for run in going if run.units]
        witnesses = [len(run.units) for run in going if run.counts_all]
        total = max(witnesses, default=counted)
        for number, was in before.items():
            now = after.get(number)
            if was.is_processing and not (now and now.is_processing and now.task == was.task):
                own = (run.units for run in runs if run.units and run.units[0].seen.slot == number)
                follower = len(next(own, []))
                room = total - follower if total is not None else None
                if now and now.was_cut and now.task == was.task and not known(was):
                    runs.append(_cut(was, room, guess))
                else:
                    runs.append(_ending(was, room, guess, known(was)))
        steps = self._laid_out(runs, at_s, was_busy=any(one.is_processing for one in before.values()))
        self._slots, self._at_s = after, at_s
        return steps

    def _unseen(self, was: SlotSeen, now: SlotSeen, known: KnownTotal) -> list[_Run]:
        """What a request did that came and went between two looks, if it is known."""
        if now.is_processing or now.task <= was.task or now.task < 0:
            return []
        told = known(now)
        if told is None:
            self.num_unseen += 1
            return []
        # What it would have been seen as, had somebody looked.
        seen = msgspec.structs.replace(
            now,
            is_processing=True,
            num_prompt=max(1, told.num_prompt),
            num_cached=0,
            max_tokens=max(now.max_tokens, told.num_output),
        )
        ended = Ended(seen, told.num_output, told.reason, True)
        return [_Run(_units(None, seen, told.num_output), False, counts_all=False, ended=ended)]

    def _laid_out(self, runs: Sequence[_Run], at_s: float, *, was_busy: bool) -> list[StepSeen]:
        """Runs on one axis of steps, whose times share the stretch evenly."""
        per_slot: dict[int, int] = {}
        for run in runs:
            if run.units:
                slot = run.units[0].seen.slot
                per_slot[slot] = per_slot.get(slot, 0) + len(run.units)
        total = max(per_slot.values(), default=0)
        if not was_busy:
            self._last_end_s = self._at_s  # idle until the look before, at least
        start = self._last_end_s
        ended_only = [run.ended for run in runs if run.ended and not run.units]
        if not total:
            # Somebody went without a step: nothing was computed.
            return [StepSeen(at_s, at_s, ended=ended_only)] if ended_only else []
        each = (at_s - start) / total
        steps = [
            StepSeen(start + n * each, start + (n + 1) * each, is_seen=n == total - 1) for n in range(total)
        ]
        for run in runs:
            first = 0 if run.from_start else total - len(run.units)
            for place, part in enumerate(run.units, first):
                steps[place].parts.append(part)
            if run.ended is not None:
                steps[first + len(run.units) - 1 if run.units else 0].ended.append(run.ended)
        for step in steps:
            step.parts.sort(key=lambda part: part.seen.slot)
        self._last_end_s = at_s
        if was_busy and each > 0:
            self._step_s = each if not self._step_s else (1 - _NEWEST) * self._step_s + _NEWEST * each
        return steps


def _steady(was: SlotSeen | None, now: SlotSeen) -> SlotSeen:
    """A look at a slot, set right by the look before."""
    if was is None or not (was.is_processing and now.is_processing and was.task == now.task):
        return now
    if now.num_shifted == was.num_shifted + 1:
        # The newest token is in one count and not yet in the other; nobody drops one token.
        return msgspec.structs.replace(now, num_shifted=was.num_shifted)
    if now.num_decoded and not (was.num_decoded or was.num_prompt):
        # Another completion of the same prompt (`n`): it had none of its own until it got the first one's
        # keys, which nobody computed again.
        return msgspec.structs.replace(now, num_processed=0, num_cached=now.num_prompt)
    return now


def _going(was: SlotSeen | None, now: SlotSeen) -> _Run:
    """What the request that has a slot now did in it since the look before."""
    is_same = was is not None and was.is_processing and was.task == now.task
    if is_same and was is not None:
        units = _units(was, now, now.num_decoded)
        return _Run(units, from_start=False, counts_all=was.num_decoded > 0)
    return _Run(_units(None, now, now.num_decoded), from_start=False, counts_all=False)


def _units(was: SlotSeen | None, now: SlotSeen, decoded: int) -> list[Part]:
    """Steps of one request from where it was to `decoded` output tokens."""
    done = was.num_decoded if was else 0
    units: list[Part] = []
    if not done:
        # What was cached is known only once the server has looked: until then nothing was fed.
        fed = was.num_fed if was and was.num_processed else now.num_cached
        is_first = not (was and was.num_processed)
        if decoded:
            count = max(1, now.num_prompt - fed)
            units.append(Part(now, True, now.num_prompt - count, count, 1, is_first))
            done = 1
        elif now.num_fed > fed and now.num_processed:
            units.append(Part(now, True, fed, now.num_fed - fed, None, is_first))
    for number in range(done + 1, decoded + 1):
        units.append(Part(now, False, max(0, now.num_prompt + number - 2 - now.num_shifted), 1, number))
    return units


def _cut(was: SlotSeen, room: int | None, guess: int) -> _Run:
    """What a request did before it was over without its last output token.

    Of one that never came to its first, the rest of the prompt was fed, if anything: that is all that a
    pooling task does, and what became of another nobody knows.
    """
    if was.num_decoded:
        more = min(was.num_remaining, room if room is not None else guess)
        num_output = was.num_decoded + max(0, more)
        ended = Ended(was, num_output, "abort", True)
        return _Run(_units(was, was, num_output), True, counts_all=False, ended=ended)
    left = was.num_prompt - was.num_fed
    units = [Part(was, True, was.num_fed, left, None, not was.num_processed)] if left and room != 0 else []
    return _Run(units, True, counts_all=False, ended=Ended(was, 0, END_NOT_TOLD, False))


def _ending(was: SlotSeen, room: int | None, guess: int, known: Known | None) -> _Run:
    """What a request that is gone did before it went.

    Args:
        room: steps it can have been in, counted by others; None: nobody counted.
        guess: steps there were, by the clock.
    """
    left = was.num_remaining
    if known is not None:
        num_output, reason = max(known.num_output, was.num_decoded), known.reason
    elif room is None:
        # Most requests end by their length, and the clock is a rough witness.
        num_output = was.num_decoded + (left if left <= 2 * guess + 2 else min(left, guess))
        reason = _likely_reason(was, num_output)
    else:
        num_output = was.num_decoded + max(0, min(left, room))
        reason = _likely_reason(was, num_output)
    units = _units(was, was, num_output)
    return _Run(units, True, counts_all=False, ended=Ended(was, num_output, reason, known is not None))


def _likely_reason(was: SlotSeen, num_output: int) -> str:
    """Whoever made all it might has ended by that; of any other end the slots do not tell why."""
    return "length" if num_output >= was.max_tokens else END_NOT_TOLD
