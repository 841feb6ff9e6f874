"""Prompts on their way in: between being asked for and having token ids.

Order is arrival: the runner encodes in order, and what came in one `Submit` enters together, so step
counts do not depend on thread timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import msgspec

from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.live.prompting import enter, inputs_of, prompts_of
from engine.live.state import Arriving
from engine.request import SamplingParams
from engine.runner import Encoded, ModelInfo, ModelRunner
from engine.stream.records import WAITING_SHOWN


@dataclass(slots=True)
class Arrival:
    """One request as asked for, with its arrival number and time (engine clock, seconds)."""

    request: PromptRequest
    params: SamplingParams
    index: int
    arrival_s: float
    cancelled: bool = False


class Arrivals:
    """Groups of requests waiting for their ids.

    Args:
        runner: encodes.
        new_seed: picks a seed for requests without one.
    """

    def __init__(self, runner: ModelRunner, new_seed: Callable[[], int]) -> None:
        self._runner = runner
        self._new_seed = new_seed
        self._groups: dict[int, list[Arrival]] = {}
        self._asked: set[int] = set()
        self._next_ticket = 0
        #: Arrival numbers given out before there was an engine.
        self.num_taken = 0

    def __len__(self) -> int:
        return sum(not a.cancelled for group in self._groups.values() for a in group)

    def take_index(self) -> int:
        """The next arrival number, while there is no engine to give them out."""
        self.num_taken += 1
        return self.num_taken - 1

    def submit(
        self, requests: Sequence[PromptRequest], arrival_s: float, take_index: Callable[[], int]
    ) -> list[str]:
        """Take in requests that enter together; a sentence for each one that cannot be.

        Args:
            take_index: gives out arrival numbers; a refused request leaves a gap.
        """
        group, errors = [], []
        for request in requests:
            index = take_index()
            try:
                group.append(Arrival(request, request.sampling(self._new_seed), index, arrival_s))
            except ValueError as exc:
                errors.append(str(exc))
        if group:
            self._groups[self._next_ticket] = group
            self._next_ticket += 1
        return errors

    def ask(self) -> None:
        """Send what was not sent yet to be encoded."""
        for ticket, group in self._groups.items():
            if ticket not in self._asked:
                self._asked.add(ticket)
                self._runner.encode(ticket, inputs_of([a.request for a in group]))

    def ask_again(self, info: ModelInfo) -> None:
        """The model is new: whatever it was asked before is lost.

        If it has no chat template, what was typed before anybody could know goes in as it stands.
        """
        self._asked.clear()
        if not info.has_chat_template:
            for arrival in self._all():
                arrival.request = msgspec.structs.replace(arrival.request, chat=False)
        self.ask()

    def enter(self, engine: Engine, event: Encoded) -> list[str]:
        """Enqueue the group of an answer, without those cancelled meanwhile; a sentence for each that cannot
        be."""
        self._asked.discard(event.ticket)
        group = self._groups.get(event.ticket, [])
        errors = []
        prompts = prompts_of([arrival.request for arrival in group], event.prompts) if group else []
        for arrival, prompt in zip(tuple(group), prompts, strict=True):
            del group[0]  # should the engine break over this one, those behind it are still here
            if arrival.cancelled:
                continue
            if prompt.error:
                errors.append(prompt.error)
                continue
            try:
                enter(
                    engine,
                    arrival.request,
                    prompt,
                    arrival.params,
                    arrival_s=arrival.arrival_s,
                    index=arrival.index,
                )
            except ValueError as exc:
                errors.append(str(exc))
        self._groups.pop(event.ticket, None)
        return errors

    def cancel(self, request_id: str) -> bool:
        """Take out one that has no ids yet; False if it is not here."""
        for arrival in self._all():
            if f"r{arrival.index}" == request_id and not arrival.cancelled:
                arrival.cancelled = True
                return True
        return False

    def shown(self, reason: str) -> tuple[Arriving, ...]:
        """The first of them, for a screen."""
        alive = (a for a in self._all() if not a.cancelled)
        return tuple(
            Arriving(f"r{a.index}", a.index, a.request.prompt, a.request.max_tokens, reason)
            for a in islice(alive, WAITING_SHOWN)
        )

    def _all(self) -> Iterator[Arrival]:
        return chain.from_iterable(self._groups.values())
