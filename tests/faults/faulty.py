"""A switch for each place a fault can be put in, around the fake model: nothing of it is in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from engine.fake import FakeRunner
from engine.request import Request, SamplingParams
from engine.runner import (
    Died,
    Encoded,
    EncodedPrompt,
    ForwardError,
    PromptInput,
    RunnerDied,
    RunnerEvent,
)
from engine.scheduling.policies.fcfs import FirstComeFirstServed
from engine.step.check import Check, Checked
from engine.step.plan import Plan, Reply

#: The step in which a fault of a forward comes.
FATAL_STEP = 3


class FaultyRunner(FakeRunner):
    """The fake model with every switch off."""

    def __init__(self) -> None:
        super().__init__()
        self.in_forward: Callable[[Plan], Exception | None] = lambda plan: None
        #: The request whose logits are no numbers in `FATAL_STEP`.
        self.spoilt = ""
        self.in_encode = ""
        self.in_check: Exception | None = None
        self.dies_between = False

    def run(self, plan: Plan) -> Reply:
        error = self.in_forward(plan)
        if error is not None:
            if isinstance(error, RunnerDied):
                self._arenas.clear()
            raise error
        reply = super().run(plan)
        for place, row in enumerate(plan.rows):
            if plan.step == FATAL_STEP and row.request_id == self.spoilt:
                sampled = [None if n == place else token for n, token in enumerate(reply.sampled)]
                return msgspec.structs.replace(reply, sampled=sampled, faults={place: "not finite (NaN)"})
        return reply

    def check(self, check: Check) -> Checked:
        if self.in_check is not None:
            raise self.in_check
        return super().check(check)

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        if self.in_encode and any(self.in_encode in prompt.text for prompt in prompts):
            # What the worker answers when its tokenizer raises.
            self._events.append(
                Encoded(ticket, [EncodedPrompt([], error="ValueError: no such character") for _ in prompts])
            )
        else:
            super().encode(ticket, prompts)

    def poll(self) -> list[RunnerEvent]:
        events = super().poll()
        if self.dies_between and self._arenas:
            self.dies_between = False
            self._arenas.clear()
            events.append(Died("the model process was ended by SIGKILL", self._epoch))
        return events


class BrokenPolicy(FirstComeFirstServed):
    """Answers the wrong way, or not at all, once asked about the third request.

    Args:
        key: its key for that request; an exception is raised.
        victim: whom it would preempt; None: who entered last, as others do.
    """

    name = "broken"

    def __init__(self, key: object = None, victim: object = None) -> None:
        self._key = key
        self._victim = victim

    def order_key(self, request: Request) -> tuple[float, ...]:
        if request.index == 2 and self._key is not None:
            return cast(tuple[float, ...], _answer(self._key))
        return (-request.index,)  # last come, first served

    def victim(self, running: Sequence[Request]) -> Request:
        if self._victim is None:
            return running[-1]
        return cast(Request, _answer(self._victim))


def _answer(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


#: What each says is wrong, and the policy.
BROKEN_POLICIES: dict[str, BrokenPolicy] = {
    "raised ZeroDivisionError: an order by nothing": BrokenPolicy(ZeroDivisionError("an order by nothing")),
    "raised RecursionError: ": BrokenPolicy(RecursionError()),
    "gave a key that is no tuple of numbers": BrokenPolicy("z"),
    "gave a key that is no tuple of numbers (words)": BrokenPolicy(("z",)),
    "gave a key that is no tuple of numbers (NaN)": BrokenPolicy((float("nan"),)),
    "raised IndexError: whom": BrokenPolicy(victim=IndexError("whom")),
    "would preempt somebody who is not running": BrokenPolicy(
        victim=Request("r9", 9, [1], SamplingParams(), 0.0, 0, 0)
    ),
    "would preempt somebody who is not running (nobody)": BrokenPolicy(victim="nobody"),
}


def at_fatal_step(error: Exception) -> Callable[[Plan], Exception | None]:
    """Once: an engine that broke in that step makes it again."""
    left = [error]
    return lambda plan: left.pop() if left and plan.step == FATAL_STEP else None


@dataclass(frozen=True)
class Fault:
    """A fault, and what it may cost.

    Attributes:
        switch: turns it on.
        ends: the requests it ends in error, of four on two slots with two prompts at first: None: those
            that were in the fatal step.
        cause: in what is told of them.
        verdict: what checking the ones that have made tokens alone says of them.
    """

    switch: Callable[[FaultyRunner], None]
    ends: frozenset[str] | None
    cause: str
    verdict: str = "same"


def _set(name: str, value: object) -> Callable[[FaultyRunner], None]:
    return lambda runner: setattr(runner, name, value)


def _forward(error: Exception) -> Callable[[FaultyRunner], None]:
    return lambda runner: setattr(runner, "in_forward", at_fatal_step(error))


def _becomes_another(runner: FaultyRunner) -> None:
    """What is started again after a death is read from files that are others now."""
    _forward(RunnerDied("the model's file was written to"))(runner)
    runner.info = msgspec.structs.replace(runner.info, fingerprint="another")


NOBODY: frozenset[str] = frozenset()

FAULTS: dict[str, Fault] = {
    "an exception in a forward": Fault(
        _forward(ForwardError("shapes do not match")), None, "shapes do not match"
    ),
    "out of memory in a forward": Fault(
        _forward(ForwardError("OutOfMemoryError: tried to allocate 2 GiB")), None, "OutOfMemoryError"
    ),
    "logits of NaN for one request": Fault(_set("spoilt", "r1"), frozenset({"r1"}), "not finite"),
    "the model process killed in a step": Fault(
        _forward(RunnerDied("the model process was ended by SIGKILL")), None, "SIGKILL"
    ),
    "the model process killed between steps": Fault(_set("dies_between", True), NOBODY, "SIGKILL"),
    "the model process answering rubbish": Fault(
        _forward(RunnerDied("the model process answered rubbish and was ended")), None, "rubbish"
    ),
    "the engine's own thread, in a step": Fault(
        _forward(ZeroDivisionError("oops")), frozenset({"r0", "r1", "r2", "r3"}), "ZeroDivisionError: oops"
    ),
    "a check alone that fails": Fault(
        _set("in_check", ForwardError("no memory")), NOBODY, "no memory", "unchecked"
    ),
    "the model's files changed before it is started again": Fault(
        _becomes_another, frozenset({"r0", "r1", "r2", "r3"}), "file was written to", "unchecked"
    ),
}
