"""What is asked of a runner to check tokens that were served, and what comes back.

A check is the sequence as it is, alone: no plan, no blocks, no layout. A runner answers it by the model's
own plain forward with a cache that is nobody else's, so nothing that could be wrong about a step (packing,
mask, positions, cells, prefix sharing, a fast or replayed call) can be wrong here in the same way.
"""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True):
    """A piece of a sequence, and what was served after it.

    Attributes:
        epoch: which start of the runner it is meant for.
        start: place in the sequence of the piece's first token; 0 begins a sequence, another number goes on
            with the piece before.
        token_ids: the piece, at least one token.
        served: the tokens that followed its last `len(served)` tokens when they were served. None of them
            is chosen here: each is judged after the tokens that were really served before it.
        is_last: nothing more of this sequence comes; its cache may go.
    """

    epoch: int
    start: int
    token_ids: list[int]
    served: list[int]
    is_last: bool = False


class Checked(msgspec.Struct, frozen=True):
    """The answer, a number for each of `Check.served`.

    Attributes:
        choices: the likeliest token alone: what greedy decoding would have taken.
        gaps: how much higher its logit is than that of the token served, 0 where they are the same.
        logprobs: natural log probability of the token served.
    """

    choices: list[int]
    gaps: list[float]
    logprobs: list[float]
