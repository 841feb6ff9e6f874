"""Asks a policy, whatever it does then: raise, give what is no answer, or not come back.

A policy is somebody else's code in the engine's thread. Nothing can end it from outside; but another thread
can see here that it is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isnan

from engine.request import Request
from engine.scheduling.policies.base import Policy

#: Seconds after which a policy is said not to answer.
PATIENCE_S = 5.0

#: By thread: the name of the policy it waits for, and since when, monotonic seconds.
_waiting: dict[int, tuple[str, float]] = {}


class PolicyFault(Exception):
    """A policy raised, or answered what is no answer; the message says which did what."""


def key_of(policy: Policy, request: Request) -> tuple[float, ...]:
    """The policy's key for a request.

    Raises:
        PolicyFault: it raised, or gave something that cannot be put in order with other keys.
    """
    try:
        with _waiting_for(policy):
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
        with _waiting_for(policy):
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


@contextmanager
def _waiting_for(policy: Policy) -> Iterator[None]:
    thread = threading.get_ident()
    _waiting[thread] = policy.name, time.monotonic()
    try:
        yield
    finally:
        del _waiting[thread]


def unanswered(thread: int, now_s: float) -> str:
    """The policy that keeps a thread waiting for too long, in a sentence; empty: there is none.

    Args:
        thread: its identifier.
        now_s: monotonic seconds.
    """
    name, since_s = _waiting.get(thread, ("", now_s))
    waited_s = now_s - since_s
    if not name or waited_s < PATIENCE_S:
        return ""
    return f"the policy {name} has not answered for {int(waited_s)} s"
