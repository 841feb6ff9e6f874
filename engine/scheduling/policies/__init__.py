"""Policies: who enters first and who gives way, one small file each, and the registry users choose from.

A new one is a class of two attributes and two methods, and its entry here:

    class LongestFirst:
        name = "longest-first"
        summary = "most output tokens first; a step of waiting makes up for one token"

        def order_key(self, request):
            return (request.arrival_step - request.params.max_tokens,)

        def victim(self, running):
            return last_in_order(self, running)

    POLICIES[LongestFirst.name] = LongestFirst()
"""

from __future__ import annotations

from engine.scheduling.policies.asking import PolicyFault, key_of, unanswered, victim_of
from engine.scheduling.policies.base import Policy, last_in_order
from engine.scheduling.policies.fcfs import FirstComeFirstServed
from engine.scheduling.policies.priority import ByPriority
from engine.scheduling.policies.shortest_first import ShortestFirst

__all__ = [
    "FIRST_COME",
    "POLICIES",
    "Policy",
    "PolicyFault",
    "key_of",
    "last_in_order",
    "policy_named",
    "unanswered",
    "victim_of",
]

#: Cannot fail: takes over from one that does.
FIRST_COME = FirstComeFirstServed()
POLICIES: dict[str, Policy] = {policy.name: policy for policy in (FIRST_COME, ByPriority(), ShortestFirst())}


def policy_named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"no policy {name!r}; there are {', '.join(POLICIES)}") from None
