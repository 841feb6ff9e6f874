"""What a policy decides: the order in which requests enter, and whom to preempt.

Pure: it sees requests, holds no KV and changes nothing. When requests may enter and how many tokens
each gets is the mode's way to batch (`batching/`); slots, blocks, the budget and the states are the
mechanism's (`scheduler.py`), once, for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Protocol

from engine.request import Request


class Policy(Protocol):
    """One order of requests.

    Nobody starves if the key grows with `arrival_step`: a request is then overtaken only by those that
    arrive within a fixed number of steps after it. That is linear ageing, written as a constant: what
    waits longer need not be sorted again.

    Attributes:
        name: what settings and records call it.
        summary: a sentence for help and menus.
    """

    name: str
    summary: str

    def order_key(self, request: Request) -> tuple[float, ...]:
        """Place in the waiting queue, smallest first, ties by arrival; constant, so the queue is a heap."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Whom to preempt when KV blocks run out; `running` is in order of admission, never empty."""


class PolicyFault(Exception):
    """A policy raised, or answered what is no answer; the message says which did what."""


def key_of(policy: Policy, request: Request) -> tuple[float, ...]:
    """The policy's key for a request.

    Raises:
        PolicyFault: it raised, or gave something that cannot be put in order with other keys.
    """
    try:
        key = policy.order_key(request)
    except Exception as exc:
        raise PolicyFault(_raised(policy, exc)) from exc
    if not isinstance(key, tuple) or not all(map(_has_an_order, key)):
        raise PolicyFault(f"the policy {policy.name} gave a key that is no tuple of numbers")
    return key


def victim_of(policy: Policy, running: Sequence[Request]) -> Request:
    """The policy's victim.

    Raises:
        PolicyFault: it raised, or named somebody who is not running.
    """
    try:
        victim = policy.victim(tuple(running))
    except Exception as exc:
        raise PolicyFault(_raised(policy, exc)) from exc
    if not any(victim is request for request in running):
        raise PolicyFault(f"the policy {policy.name} would preempt somebody who is not running")
    return victim


def _has_an_order(part: object) -> bool:
    return isinstance(part, int) or (isinstance(part, float) and not isnan(part))


def _raised(policy: Policy, exc: Exception) -> str:
    return f"the policy {policy.name} raised {type(exc).__name__}: {exc}"


def last_in_order(policy: Policy, running: Sequence[Request]) -> Request:
    """The running request that would have entered last. The first in order never gives way to another,
    so somebody always gets on."""
    return max(running, key=lambda request: (policy.order_key(request), request.index))
