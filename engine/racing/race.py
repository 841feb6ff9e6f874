"""A race: the same work in several engines on one runner, their steps strictly alternating.

Every lane has an arena and a clock of its own, so that a lane's time is its own schedule + forward +
sample and never includes the others'. Pure: no threads, no channels, no words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.runner import EncodedPrompt
from engine.session import submit
from engine.step.geometry import ArenaShape
from engine.stream.records import RequestRecord, StepRecord

#: A request as text, or as an engine has already recorded it: with its token ids.
Entry = PromptRequest | RequestRecord


class LaneSpec(msgspec.Struct, frozen=True):
    """One lane: its name, its engine's limits and mode, and what it is to do.

    `arrivals`: requests come at their own times, so many times as fast; None: all at once.
    """

    name: str
    config: EngineConfig
    entries: tuple[Entry, ...]
    arrivals: float | None = None


class Race:
    """Steps engines in turn.

    Args:
        engines: one a lane, in the order they step; all on one runner, each in an arena of its own.
        after_step: told of each lane that has stepped, before anybody asks whether it has work left.
    """

    def __init__(
        self, engines: Sequence[Engine], after_step: Callable[[int], None] = lambda lane: None
    ) -> None:
        self.engines = tuple(engines)
        self._after_step = after_step
        #: Whose step was the last one.
        self._last = len(self.engines) - 1

    @property
    def has_work(self) -> bool:
        """Whether any lane has something to do."""
        return any(engine.has_work for engine in self.engines)

    @property
    def lane(self) -> int:
        """Whose turn it is; a lane that has ended is passed over."""
        count = len(self.engines)
        turns = [(self._last + 1 + n) % count for n in range(count)]
        return next((turn for turn in turns if self.engines[turn].has_work), 0)

    @property
    def is_even(self) -> bool:
        """Whether a round is complete: every lane that still runs has had its step."""
        return not self.has_work or self.lane <= self._last

    def step(self) -> tuple[int, StepRecord]:
        """One step of the lane whose turn it is.

        Raises:
            StepLost: the runner died; `lane` still names the lane whose step it was.
            ValueError: nobody has anything to do, or what came after the step cannot be run.
        """
        lane = self.lane
        record = self.engines[lane].step()
        if record is None:
            raise ValueError("no lane has anything to do")
        self._last = lane
        self._after_step(lane)
        return lane, record

    def run(self) -> Iterator[tuple[int, StepRecord]]:
        """All steps to the end, each with its lane."""
        while self.has_work:
            yield self.step()


def enter(engine: Engine, entry: Entry, encoded: EncodedPrompt | None = None) -> str:
    """Submit an entry to a lane's engine and return its id there.

    Args:
        encoded: the ids of an entry that is text.

    Raises:
        ValueError: it has no tokens, or sampling parameters out of range.
    """
    if isinstance(entry, RequestRecord):
        request = PromptRequest(
            prompt=entry.prompt_text,
            max_tokens=entry.max_tokens,
            temperature=entry.temperature,
            seed=entry.seed,
            ignore_eos=entry.ignore_eos,
            stop_token_ids=entry.stop_token_ids,
            label=entry.label,
            top_k=entry.top_k,
            top_p=entry.top_p,
            stop=entry.stop,
            n_logprobs=entry.n_logprobs,
            priority=entry.priority,
        )
        encoded = EncodedPrompt(list(entry.prompt_token_ids), entry.num_template_tokens)
        return submit(engine, request, encoded)
    if encoded is None:
        raise ValueError("the prompt has no token ids yet")
    # A lane without a seed of its own must not draw other tokens than its neighbour.
    seed = 0 if entry.seed is None else entry.seed
    return submit(engine, msgspec.structs.replace(entry, seed=seed), encoded)


def with_room(config: EngineConfig, lengths: Sequence[int]) -> EngineConfig:
    """The limits with no more KV blocks than requests of those lengths (prompt + output) can ever fill.

    Arenas take memory, and a race has several. A lane that needs fewer blocks than the configuration has
    behaves the same with just those.
    """
    capped = sorted((min(n, config.max_model_len) for n in lengths), reverse=True)
    needed = sum(-(-length // config.block_size) for length in capped[: config.max_num_seqs])
    return msgspec.structs.replace(config, num_blocks=max(1, min(config.num_blocks, needed)))


def smallest_arena(config: EngineConfig) -> ArenaShape:
    """What an arena is opened as to give its memory back."""
    return ArenaShape(1, config.block_size, 1)
