"""What a race is between: which modes, and which requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cbtui.telling.words import count
from engine.config import EngineConfig
from engine.racing.race import Entry, LaneSpec
from engine.scheduling.modes import MODES
from engine.stream.ledger import Ledger
from engine.stream.records import RequestRecord

#: Token positions of a step in a chunked lane at most: with the usual budget hardly a prompt would be cut.
CHUNKED_BUDGET = 64
#: Steps of each lane before the race begins.
WARM_UP_STEPS = 3
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
    Pair("continuous", "chunked", "what cutting prompts to 64 tokens a step does to the others"),
    Pair("static", "continuous-padded", "refilled slots alone, in the same rectangles"),
)


def pairs() -> tuple[Pair, ...]:
    """The races on offer."""
    return tuple(pair for pair in _PAIRS if pair.one in MODES and pair.other in MODES)


def entries_so_far(ledger: Ledger) -> tuple[Entry, ...]:
    """The requests the live engine was given, oldest first; ignored ones can run nowhere."""
    return tuple(_fit(ledger)[-MOST_ENTRIES:])


def which_race(entries: Sequence[Entry], ledger: Ledger) -> str:
    """Which requests these are of all so far, in words: nobody is left out silently."""
    fit = len(_fit(ledger))
    if fit > len(entries):
        return f"The newest {len(entries)} of the {fit:,} requests so far"
    return f"The {count(fit, 'request')} so far"


def _fit(ledger: Ledger) -> list[RequestRecord]:
    stories = ledger.in_order
    return [s.request for s in stories if s.finish is None or s.finish.reason != "ignored"]


def lanes_of(
    pair: Pair, config: EngineConfig, entries: Sequence[Entry], arrivals: float | None = None
) -> tuple[LaneSpec, LaneSpec]:
    """The two lanes: the same limits and requests, another mode each; a chunked lane's budget is small.

    Args:
        arrivals: requests come at their own times, so many times as fast; None: all at once.
    """
    return (_lane(pair.one, config, entries, arrivals), _lane(pair.other, config, entries, arrivals))


def _lane(mode: str, config: EngineConfig, entries: Sequence[Entry], arrivals: float | None) -> LaneSpec:
    budget = config.max_num_batched_tokens
    if mode == "chunked":
        budget = min(budget, max(CHUNKED_BUDGET, config.max_num_seqs))
    in_mode = msgspec.structs.replace(config, mode=mode, max_num_batched_tokens=budget)
    return LaneSpec(mode, in_mode, tuple(entries), arrivals)
