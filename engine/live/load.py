"""A load generator: requests that arrive at random, the same ones for the same seed.

Arrivals are a Poisson process on the **wall clock, less the time the engine was paused or had no model**:
people do not stop arriving because a step is slow or a speed limit is set, so past saturation the queue
must grow; and the engine clock will not do, because it stands still while the engine is empty. What
arrives when follows from the seed alone, so two runs at the same rate get the same requests in the same
order. Pure: the time is given.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import msgspec

#: The ticket under which the text that prompts are cut from is encoded.
LOAD_TICKET = (1 << 40) - 1
#: With so many waiting the generator stops: nothing new is to be seen, and memory is not endless.
MOST_WAITING = 2_000
#: The fastest rate, requests a second.
MOST_PER_S = 1_000.0
#: The longest prompt or output; no engine's `max_model_len` comes near.
MOST_TOKENS = 1_000_000

Range = tuple[int, int]


class LoadError(ValueError):
    """A load that cannot be generated; the message is one sentence for the user."""


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives.

    Attributes:
        rate_per_s: requests a second, on average; the gaps between them are exponential.
        prompt_tokens, output_tokens: shortest and longest, uniform between. Outputs run to their length
            whatever end-of-sequence says.
        seed: of times and lengths.

    Raises:
        LoadError: a value is out of range.
    """

    rate_per_s: float = 2.0
    prompt_tokens: Range = (8, 64)
    output_tokens: Range = (16, 64)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s <= MOST_PER_S:
            raise LoadError(f"the rate must be above 0 and at most {MOST_PER_S:,.0f} requests a second")
        for name, (low, high) in (("prompt", self.prompt_tokens), ("output", self.output_tokens)):
            if not 1 <= low <= high <= MOST_TOKENS:
                raise LoadError(
                    f"{name} tokens must be a range such as 8-64, from at least 1 to at most {MOST_TOKENS:,}"
                )
        if self.seed < 0:
            raise LoadError("the seed must be 0 or more")


class StartLoad(msgspec.Struct, frozen=True):
    """Let requests arrive from now on; replaces a load under way."""

    spec: LoadSpec


class StopLoad(msgspec.Struct, frozen=True):
    """No more arrivals; those that came stay."""


class LoadNow(msgspec.Struct, frozen=True):
    """A load under way, for the screen: what it is, and how many have arrived."""

    spec: LoadSpec
    num_arrived: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """One arrival: when (seconds since the start), how long, and where its prompt is cut (0–1)."""

    time_s: float
    prompt_tokens: int
    output_tokens: int
    place: float


def arrivals(spec: LoadSpec) -> Iterator[Drawn]:
    """The arrivals in order, without end; they depend on the spec alone."""
    draw = random.Random(spec.seed)
    time_s = 0.0
    while True:
        time_s += draw.expovariate(spec.rate_per_s)
        yield Drawn(
            time_s, draw.randint(*spec.prompt_tokens), draw.randint(*spec.output_tokens), draw.random()
        )


def passage() -> str:
    """The text that prompts are cut from."""
    return resources.files("engine").joinpath("workload", "passage.txt").read_text("utf-8").strip()
