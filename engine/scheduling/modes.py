"""The modes a user switches between: each is a way to batch and a layout."""

from __future__ import annotations

import msgspec

from engine.scheduling.batching.base import Batching
from engine.scheduling.batching.chunked import ChunkedBatching
from engine.scheduling.batching.continuous import ContinuousBatching
from engine.scheduling.batching.static import StaticBatching
from engine.step.plan import Layout


class Mode(msgspec.Struct, frozen=True):
    """A named pair of a way to batch and a layout, with a sentence for help and menus."""

    name: str
    batching: Batching
    layout: Layout
    summary: str


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("static", StaticBatching(), "padded", "waves of prompts, held until the longest has ended"),
        Mode(
            "continuous-padded",
            ContinuousBatching(),
            "padded",
            "slots refilled at every step, tokens in a padded rectangle",
        ),
        Mode("continuous", ContinuousBatching(), "ragged", "slots refilled at every step, one packed row"),
        Mode("chunked", ChunkedBatching(), "ragged", "as continuous, long prompts cut to what decodes leave"),
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
