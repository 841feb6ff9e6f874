"""Choosing tokens from logits: greedy, or drawn from a generator seeded by (seed, output index).

No random state lives anywhere, so a token does not depend on its neighbours in the batch, on
preemption, on a restart or on the device. The order is that of transformers and vLLM: temperature,
top-k, top-p. A repetition penalty is left out: transformers' processor wants all ids of every sequence
as a tensor, which a plan does not carry.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch

from engine.step.plan import PlanRow, SampledToken
from engine.torch_runner.largest import argmax, top_k

#: How many of the likeliest tokens are looked at first for a nucleus.
_LIKELY = 1024


def sample(logits: torch.Tensor, rows: Sequence[PlanRow]) -> list[SampledToken | None]:
    """One token a row, with one transfer from the device for all of them.

    Args:
        logits: `[len(rows), vocab]`, in the rows' order.
        rows: the plan rows they belong to; each has `sampling`.

    Returns:
        Tokens with natural log probabilities of the model's own distribution, temperature not applied;
        None where a row's logits are not finite: nothing can be chosen by them.
    """
    if not rows:
        return []
    precise = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(precise)
    tokens = argmax(logits)
    drawn = [i for i, row in enumerate(rows) if row.sampling is not None and row.sampling.temperature > 0.0]
    if drawn:
        tokens[drawn] = _draw(logits[drawn], [rows[i] for i in drawn])
    n_top = min(max(row.n_top for row in rows), logits.shape[-1])
    # All of them, for a few: on a CPU that takes half the time of `logsumexp`, which is not one pass.
    logprobs = torch.log_softmax(logits, dim=-1)
    columns = [tokens.unsqueeze(-1), logprobs.gather(-1, tokens.unsqueeze(-1))]
    if n_top:
        top_tokens = top_k(logits, n_top)[1]
        columns += [top_tokens, logprobs.gather(-1, top_tokens)]
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
    """Inverse transform sampling: the first token at which the cumulated probability exceeds the draw.

    Token ids are cumulated in their own order, not by likelihood, so that logits that differ in the last
    bit (another batch, another kernel) move a boundary by that much and swap no two tokens.

    Args:
        logits: `[len(rows), vocab]`.
        rows: all of them with a temperature above 0.

    Returns:
        `[len(rows)]` token ids.
    """
    wanted = [row.sampling for row in rows if row.sampling is not None]
    # float32 sums over a vocabulary lose more than a batch does; MPS has no float64.
    precise = logits.dtype if logits.device.type == "mps" else torch.float64
    settings = [
        [uniform(params.seed, row.output_index), params.temperature, params.top_p]
        for row, params in zip(rows, wanted, strict=True)
    ]
    draw, temperature, top_p = torch.tensor(settings, dtype=precise, device=logits.device).unbind(-1)
    logits = logits.to(precise)
    # Subtracting the largest first keeps a very small temperature from overflowing.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature.clamp_min(1e-8).unsqueeze(-1)
    logits = keep_top_k(logits, [params.top_k for params in wanted])
    if any(params.top_p < 1.0 for params in wanted):
        logits = keep_top_p(logits, top_p)
    cumulated = torch.softmax(logits, dim=-1).cumsum(dim=-1)
    # A draw just below 1 must stay below it in the logits' type, or it would pass the last likely token.
    below_one = 1.0 - torch.finfo(precise).eps
    target = draw.clamp_max(below_one).unsqueeze(-1) * cumulated[:, -1:]
    places = torch.searchsorted(cumulated, target, right=True).squeeze(-1)
    return places.clamp_max(logits.shape[-1] - 1)


def keep_top_k(logits: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    """Logits with all but each row's `top_k` largest at -inf; 0 keeps a row as it is.

    As transformers' `TopKLogitsWarper` and vLLM: tokens level with the k-th stay too.
    """
    most = min(max(top_k), logits.shape[-1])
    if most <= 0:
        return logits
    largest = logits.topk(most, dim=-1).values
    places = torch.tensor([[min(k, most) - 1 if k > 0 else 0] for k in top_k], device=logits.device)
    floor = largest.gather(-1, places)
    whole = torch.tensor([[k <= 0] for k in top_k], device=logits.device)
    return logits.masked_fill((logits < floor) & ~whole, float("-inf"))


def keep_top_p(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Logits with all but each row's nucleus at -inf: the likeliest tokens that together reach `top_p`.

    As transformers' `TopPLogitsWarper` and vLLM: a token stays while those likelier than it hold less than
    `top_p`, so the likeliest always does; tokens level with the last one stay too.

    Args:
        logits: `[rows, vocab]`.
        top_p: `[rows]`, in (0, 1]; a row with 1 keeps all.
    """
    probabilities = torch.softmax(logits, dim=-1)
    wanted = top_p.unsqueeze(-1)
    some = min(_LIKELY, logits.shape[-1])
    likeliest = probabilities.topk(some, dim=-1).values
    # Sorting a whole vocabulary takes ten times as long as its likeliest 1,024 tokens, which nearly always
    # suffice. On an accelerator it is fast, and asking whether they do would wait for the device.
    if logits.device.type != "cpu" or bool(((likeliest.sum(-1, keepdim=True) < wanted) & (wanted < 1)).any()):
        likeliest = probabilities.sort(dim=-1, descending=True).values
    before = likeliest.cumsum(dim=-1) - likeliest
    floor = likeliest.masked_fill(before >= wanted, float("inf")).amin(dim=-1, keepdim=True)
    return logits.masked_fill((probabilities < floor) & (wanted < 1), float("-inf"))


def _token(row: PlanRow, answer: list[float], n_top: int) -> SampledToken | None:
    token, logprob, *rest = answer
    if not math.isfinite(logprob):
        return None
    wanted = min(row.n_top, n_top)
    top = [(int(rest[i]), rest[n_top + i]) for i in range(wanted)]
    return SampledToken(token_id=int(token), logprob=logprob, top=top)
