"""What a race is between: which modes, and which requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from engine.config import EngineConfig
from engine.race import Entry, LaneSpec
from engine.scheduling.modes import MODES
from engine.stream.ledger import Ledger

#: Requests of the live engine that race at most: the newest ones.
MOST_ENTRIES = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """Two modes worth a race, and the question it answers."""

    one: str
    other: str
    question: str


#: In the order offered; those whose modes there are not are left out.
_PAIRS = (
    Pair("static", "continuous", "what refilling slots gains"),
    Pair("continuous-padded", "continuous", "what packing gains over padding"),
    Pair("continuous", "chunked", "what cutting long prompts does to the others"),
    Pair("static", "continuous-padded", "refilled slots alone, in the same rectangles"),
)


def pairs() -> tuple[Pair, ...]:
    """The races on offer."""
    return tuple(pair for pair in _PAIRS if pair.one in MODES and pair.other in MODES)


def entries_so_far(ledger: Ledger) -> tuple[Entry, ...]:
    """The requests the live engine was given, oldest first; ignored ones can run nowhere."""
    stories = sorted(ledger.stories.values(), key=lambda story: story.index)
    fit = [s.request for s in stories if s.finish is None or s.finish.reason != "ignored"]
    return tuple(fit[-MOST_ENTRIES:])


def lanes_of(pair: Pair, config: EngineConfig, entries: Sequence[Entry]) -> tuple[LaneSpec, LaneSpec]:
    """The two lanes: the same limits and requests, another mode each."""
    return (
        LaneSpec(pair.one, msgspec.structs.replace(config, mode=pair.one), tuple(entries)),
        LaneSpec(pair.other, msgspec.structs.replace(config, mode=pair.other), tuple(entries)),
    )
