"""The modes a user switches between: each is a policy and a layout."""

from __future__ import annotations

import msgspec

from engine.scheduling.policies.base import Policy
from engine.scheduling.policies.continuous import ContinuousPolicy
from engine.scheduling.policies.static import StaticPolicy
from engine.step.plan import Layout


class Mode(msgspec.Struct, frozen=True):
    """A named pair of policy and layout, with a sentence for help and menus."""

    name: str
    policy: Policy
    layout: Layout
    summary: str


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("static", StaticPolicy(), "padded", "waves of prompts, held until the longest has ended"),
        Mode(
            "continuous-padded",
            ContinuousPolicy(),
            "padded",
            "slots refilled at every step, tokens in a padded rectangle",
        ),
        Mode("continuous", ContinuousPolicy(), "ragged", "slots refilled at every step, one packed row"),
    )
}


def mode_named(name: str) -> Mode:
    """The mode of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    try:
        return MODES[name]
    except KeyError:
        raise ValueError(f"no mode {name!r}; there are {', '.join(MODES)}") from None
