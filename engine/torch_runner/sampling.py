"""Choosing tokens from logits: greedy, or drawn from a generator seeded by (seed, output index).

No random state lives anywhere, so a token does not depend on its neighbours in the batch, on
preemption, on a restart or on the device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch

from engine.runner import ForwardError
from engine.step.plan import PlanRow, SampledToken


def sample(logits: torch.Tensor, rows: Sequence[PlanRow]) -> list[SampledToken]:
    """One token a row, with one transfer from the device for all of them.

    Args:
        logits: `[len(rows), vocab]`, in the rows' order.
        rows: the plan rows they belong to; each has `sampling`.

    Returns:
        Tokens with natural log probabilities of the model's own distribution, temperature not applied.

    Raises:
        ForwardError: a row's logits are not finite.
    """
    if not rows:
        return []
    precise = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(precise)
    tokens = logits.argmax(dim=-1)
    drawn = [i for i, row in enumerate(rows) if row.sampling is not None and row.sampling.temperature > 0.0]
    if drawn:
        tokens[drawn] = _draw(logits[drawn], [rows[i] for i in drawn])
    n_top = min(max(row.n_top for row in rows), logits.shape[-1])
    normalizer = torch.logsumexp(logits, dim=-1, keepdim=True)
    logprobs = logits.gather(-1, tokens.unsqueeze(-1)) - normalizer
    columns = [tokens.unsqueeze(-1), logprobs]
    if n_top:
        top_logits, top_tokens = logits.topk(n_top, dim=-1)
        columns += [top_tokens, top_logits - normalizer]
    # Ids travel beside the floats: float64 holds them exactly, float32 (all that MPS has) up to 2 ** 24.
    wire = torch.float32 if logits.device.type == "mps" else torch.float64
    answers = torch.cat([column.to(wire) for column in columns], dim=-1).tolist()
    return [_token(row, answer, n_top) for row, answer in zip(rows, answers, strict=True)]


def uniform(seed: int, output_index: int) -> float:
    """The one random number in [0, 1) that output token `output_index` of a request is drawn with."""
    digest = hashlib.blake2b(f"{seed}/{output_index}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return float(torch.rand((), generator=generator, dtype=torch.float64))


def _draw(logits: torch.Tensor, rows: Sequence[PlanRow]) -> torch.Tensor:
    """Inverse transform sampling: the first token at which the cumulated probability exceeds the draw."""
    temperatures = [row.sampling.temperature for row in rows if row.sampling is not None]
    draws = [uniform(row.sampling.seed, row.output_index) for row in rows if row.sampling is not None]
    draw = torch.tensor(draws, dtype=logits.dtype, device=logits.device)
    temperature = torch.tensor(temperatures, dtype=logits.dtype, device=logits.device).clamp_min(1e-8)
    # Subtracting the largest first keeps a very small temperature from overflowing.
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperature.unsqueeze(-1)
    cumulated = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
    # A draw just below 1 must stay below it in the logits' type, or it would pass the last likely token.
    below_one = 1.0 - torch.finfo(logits.dtype).eps
    wanted = draw.clamp_max(below_one).unsqueeze(-1) * cumulated[:, -1:]
    places = torch.searchsorted(cumulated, wanted, right=True).squeeze(-1)
    return places.clamp_max(logits.shape[-1] - 1)


def _token(row: PlanRow, answer: list[float], n_top: int) -> SampledToken:
    token, logprob, *rest = answer
    if not math.isfinite(logprob):
        raise ForwardError(f"the model's logits for {row.request_id} are not finite (NaN or infinity)")
    wanted = min(row.n_top, n_top)
    top = [(int(rest[i]), rest[n_top + i]) for i in range(wanted)]
    return SampledToken(token_id=int(token), logprob=logprob, top=top)
