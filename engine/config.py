"""What an engine is set to: the limits of a step, of a request and of the KV cache.

Owns the numbers and their checks. Knows nothing of policies, requests or tensors.
"""

from __future__ import annotations

import msgspec

#: Slots an arena keeps a scratch cell for; also the most `max_num_seqs` may be set to while running.
SLOT_LIMIT = 256
#: The most a limit may be set to: far beyond any machine, and small enough to be counted and sent.
_MOST = {
    "max_num_batched_tokens": 1 << 30,
    "max_model_len": 1 << 30,
    "block_size": 1 << 16,
    "num_blocks": 1_000_000,
}
#: Token positions of a KV cache at most: terabytes, even of a small model.
MOST_KV_TOKENS = 1 << 26


class ConfigError(ValueError):
    """A setting that cannot work; the message is one sentence for the user."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one engine. The names are vLLM's.

    Attributes:
        mode: what the user switches, one of `engine.scheduling.modes.MODES`.
        max_num_seqs: how many requests may hold a slot at once.
        max_num_batched_tokens: token positions one step may hold, padding included.
        max_model_len: longest prompt + output of a request, in tokens.
        block_size: token positions in one KV block.
        num_blocks: KV blocks in the arena.
        policy: the order in which requests enter, one of `engine.scheduling.policies.POLICIES`.
        prefix_caching: share full KV blocks between requests that begin with the same tokens.

    Raises:
        ConfigError: a limit is out of range, or the budget is below `max_num_seqs`
            (then a step could not feed every running request one token).
    """

    mode: str = "continuous"
    max_num_seqs: int = 3
    max_num_batched_tokens: int = 2048
    max_model_len: int = 2048
    block_size: int = 16
    num_blocks: int = 512
    policy: str = "fcfs"
    prefix_caching: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_blocks"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
            if value > _MOST.get(name, value):
                raise ConfigError(f"{name} must be at most {_MOST[name]:,}, not {value:,}")
        if self.max_model_len < 2:
            raise ConfigError("max_model_len must be at least 2: one prompt token and one output token")
        if self.max_num_seqs > SLOT_LIMIT:
            raise ConfigError(f"max_num_seqs must be at most {SLOT_LIMIT}, not {self.max_num_seqs}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}), or a step could not feed every running request one token"
            )
        if self.num_kv_tokens > MOST_KV_TOKENS:
            raise ConfigError(
                f"num_blocks × block_size must be at most {MOST_KV_TOKENS:,} tokens, not "
                f"{self.num_kv_tokens:,}"
            )

    @property
    def num_kv_tokens(self) -> int:
        """Token positions the KV cache can hold."""
        return self.block_size * self.num_blocks
