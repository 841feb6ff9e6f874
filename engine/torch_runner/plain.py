"""One sequence through the model as transformers itself would run it: what served tokens are held against.

Positions, mask and cache are the model's own. Of this package's code only the products with the weights
and the norms, which a loaded model carries for good, take part.
"""

from __future__ import annotations

from typing import Any

import torch

from engine.runner import ForwardError
from engine.step.check import Checked
from engine.torch_runner.forward import CausalModel


class PlainSequence:
    """Feeds a sequence in pieces; each sees all before it.

    Args:
        causal: the loaded model.
    """

    def __init__(self, causal: CausalModel) -> None:
        self._causal = causal
        self._cache: Any = None
        #: Tokens fed so far.
        self.length = 0

    def feed(self, token_ids: list[int], num_logits: int) -> torch.Tensor:
        """The next piece.

        Args:
            token_ids: at least one.
            num_logits: of how many of its last tokens the logits are wanted.

        Returns:
            `[num_logits, vocab]`.
        """
        output = self._causal.alone(token_ids, self._cache, max(1, num_logits))
        self._cache = self._causal.cache_of(output)
        self.length += len(token_ids)
        logits: torch.Tensor = output.logits[0]
        return logits[logits.shape[0] - num_logits :]


def judge(logits: torch.Tensor, served: list[int]) -> Checked:
    """Hold tokens against the logits before them.

    Args:
        logits: `[len(served), vocab]`.
        served: the tokens.

    Raises:
        ForwardError: logits are not finite.
    """
    if not served:
        return Checked([], [], [])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    best, choices = logits.max(dim=-1)
    tokens = torch.tensor(served, device=logits.device).unsqueeze(-1)
    own = logits.gather(-1, tokens).squeeze(-1)
    gaps, logprobs = best - own, own - torch.logsumexp(logits, dim=-1)
    if not bool(torch.isfinite(gaps).all() and torch.isfinite(logprobs).all()):
        raise ForwardError("the model's logits for a sequence alone are not finite (NaN or infinity)")
    return Checked(choices.tolist(), gaps.tolist(), logprobs.tolist())
