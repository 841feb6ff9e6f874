"""What is seen of a server from outside: its slots at one look, and the steps that follow from several.

Plain data. `llama_steps` and `vllm` make it, `seen_records` writes the records of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec


class SlotSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One slot at one look.

    Attributes:
        slot, n_ctx: its number and how many tokens fit.
        is_processing: a request has it.
        task: the server's number of that request, or of the last one; -1: there was none.
        num_prompt: prompt tokens.
        num_processed: of those, fed so far by this request; those found in the cache are not among them.
        num_cached: prompt tokens found in the cache.
        num_decoded: output tokens so far.
        max_tokens: output tokens at most.
        num_shifted: tokens of its start that were dropped when the context was full (a context shift).
        was_cut: its last request was over before its last output token: its client went, or it was a
            pooling task's (an embedding), which has none.
        seed: what its request was sent with.
        is_speculative: a draft model may make several tokens a step.
        prompt_text, output_text: where the server tells them (`LLAMA_SERVER_SLOTS_DEBUG=1`).
    """

    slot: int
    n_ctx: int
    is_processing: bool = False
    task: int = -1
    num_prompt: int = 0
    num_processed: int = 0
    num_cached: int = 0
    num_decoded: int = 0
    max_tokens: int = 0
    num_shifted: int = 0
    was_cut: bool = False
    seed: int = -1
    is_speculative: bool = False
    prompt_text: str = ""
    output_text: str = ""

    @property
    def num_remaining(self) -> int:
        """Output tokens it may still make."""
        return max(0, self.max_tokens - self.num_decoded)

    @property
    def num_fed(self) -> int:
        """Prompt tokens in the cache now."""
        return (
            self.num_prompt
            if self.num_decoded
            else min(self.num_cached + self.num_processed, self.num_prompt)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What a slot did in a step: fed `count` tokens from `position` on; made output token number `output`."""

    seen: SlotSeen
    is_prefill: bool
    position: int
    count: int
    output: int | None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ended in a step, after `num_output` tokens in all."""

    seen: SlotSeen
    num_output: int
    reason: str
    is_sure: bool


@dataclass(slots=True)
class StepSeen:
    """One step.

    Attributes:
        is_seen: a look came right after it; else it follows from later counts.
        is_whole: `parts` are all that was in it.
    """

    start_s: float
    end_s: float
    parts: list[Part] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    is_seen: bool = True
    is_whole: bool = True


class Width(NamedTuple):
    """The exact width of a step that was counted alone: all its tokens, and those that were decoded."""

    num_tokens: int
    num_decode: int
