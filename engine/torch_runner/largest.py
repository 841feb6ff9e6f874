"""The largest logits of each row, in two stages: the best of each block first, then within the best blocks.

torch's `amax` over a vocabulary is vectorised on the CPU; its `argmax` and `topk` walk it value by value and
take ten times as long. What they find is the same: the k largest values lie in the k blocks with the largest
maxima.
"""

from __future__ import annotations

import torch

#: Values in a block: a vocabulary of 50,000 makes about 200 of them.
BLOCK = 256


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The place of each row's largest value, the first one of equals: `[rows, vocab]` to `[rows]`."""
    return top_k(logits, 1)[1].squeeze(-1)


def top_k(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As `torch.topk`.

    Args:
        logits: `[rows, vocab]`. NaN counts as larger than anything, as in torch.
        k: 1 … vocab.

    Returns:
        values and places, both `[rows, k]`, largest first.
    """
    rows, vocab = logits.shape
    num_blocks = vocab // BLOCK
    if k >= num_blocks:
        return _best(logits, torch.arange(vocab, device=logits.device).expand(rows, -1), k)
    blocks = logits[:, : num_blocks * BLOCK].view(rows, num_blocks, BLOCK)
    maxima = blocks.amax(dim=-1)
    numbers = torch.arange(num_blocks, device=logits.device).expand(rows, -1)
    best = _best(maxima, numbers, k)[1].sort(dim=-1).values  # so that places ascend, for the first of equals
    candidates = blocks.gather(1, best.unsqueeze(-1).expand(-1, -1, BLOCK)).view(rows, -1)
    places = (best.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=logits.device)).view(rows, -1)
    rest = torch.arange(num_blocks * BLOCK, vocab, device=logits.device)
    candidates = torch.cat([candidates, logits[:, num_blocks * BLOCK :]], dim=-1)
    return _best(candidates, torch.cat([places, rest.expand(rows, -1)], dim=-1), k)


def _best(values: torch.Tensor, places: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of each row, largest first, with their places."""
    # `argmax` is documented to give the first of equals, `topk` any of them.
    best = values.argmax(dim=-1, keepdim=True) if k == 1 else values.topk(k, dim=-1).indices
    return values.gather(-1, best), places.gather(-1, best)
