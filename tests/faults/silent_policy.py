"""A policy that does not answer before it is let; as a test's runner, under the name of one there is."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from engine.fake import FakeRunner
from engine.request import Request
from engine.scheduling.policies import POLICIES, asking
from engine.scheduling.policies.fcfs import FirstComeFirstServed


class SilentPolicy(FirstComeFirstServed):
    """
    Args:
        method: the one that blocks.
        name: as in the registry.
    """

    def __init__(self, method: str = "order_key", name: str = "silent") -> None:
        self.name = name
        self._method = method
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()

    def order_key(self, request: Request) -> tuple[float, ...]:
        self._block("order_key")
        return super().order_key(request)

    def victim(self, running: Sequence[Request]) -> Request:
        self._block("victim")
        return running[-1]

    def _block(self, method: str) -> None:
        if method == self._method:
            self.was_asked.set()
            self.may_answer.wait()


def runner() -> FakeRunner:
    """For a program of its own: `--policy shortest-first` never answers there."""
    POLICIES["shortest-first"] = SilentPolicy(name="shortest-first")
    asking.PATIENCE_S = 0.5
    return FakeRunner()
