"""The fast route's attention: each group of queries attends to its own cells of the arena.

Registered with transformers' `AttentionInterface` under a name for which no mask function exists, so
that transformers builds no mask. The step reaches it by a context variable, which works for every
model that calls the interface, whatever it passes along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from engine.torch_runner.groups import Group
from engine.torch_runner.step import Step

#: The name a model's config carries on the fast route.
SEGMENT_ATTENTION = "cbtui_segments"

#: Keywords that change nothing here: what they say is in the step already, or concerns training.
_HARMLESS = frozenset(
    {"position_ids", "cache_position", "cu_seq_lens_q", "cu_seq_lens_k", "position_embeddings"}
)

_current_step: ContextVar[Step | None] = ContextVar("current_step", default=None)


class UnsupportedAttention(Exception):
    """The model asks its attention for something this route does not do."""


@contextmanager
def attending(step: Step) -> Iterator[None]:
    """Make `step` the one the attention function works on, in this thread, within the block."""
    token = _current_step.set(step)
    try:
        yield
    finally:
        _current_step.reset(token)


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a step by its groups.

    Args:
        query: `[B, heads, L, dim]`, the step's tensor.
        key, value: `[1, kv_heads, cells, dim]`, a whole layer of the arena (`ArenaCache.update`).
        scaling: of the scores; None: dim ** -0.5.
        sliding_window: keys a query sees, its own included.
        softcap: scores are capped to ± this by tanh (Gemma 2).
        s_aux: `[heads]` attention sinks, one more score in every softmax (GPT-OSS).

    Returns:
        `[B, L, heads, value_dim]`, and None for the weights.

    Raises:
        UnsupportedAttention: a keyword changes the scores in a way not honoured here.
    """
    step = _current_step.get()
    if step is None:
        raise UnsupportedAttention("attention was called outside of a step")
    _refuse_unknown(module, kwargs)
    layer = getattr(module, "layer_idx", None)
    if layer is not None:
        step.windows_seen[layer] = sliding_window
    scores = Scores(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap, s_aux)
    run = attend if step.attend is None else step.attend
    return run(step, query, key, value, sliding_window, scores), None


class Scores(NamedTuple):
    """How scores are made: a factor, a cap (None: none), one more score a head (None: none)."""

    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None


def attend(
    step: Step,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    window: int | None,
    scores: Scores,
) -> torch.Tensor:
    """Attention of a step by its groups; tensors are those of `segment_attention`."""
    rows, heads, columns, dim = query.shape
    keys, values = key[0], value[0]
    groups = step.groups(window)
    is_fused = scores.softcap is None and scores.sinks is None
    if is_fused and groups.in_order and len(groups.members) == 1 and groups.members[0].num_queries == 1:
        output = _attend_once(groups.members[0], query, keys, values, scores.scale)
        return output.reshape(rows, columns, heads, -1)
    queries = query.transpose(1, 2).reshape(rows * columns, heads, dim)
    parts = []
    for group in groups.members:
        own = queries if len(groups.members) == 1 and groups.in_order else queries[group.queries]
        if is_fused:
            parts.append(_attend(group, own, keys, values, scores.scale))
        else:
            parts.append(_attend_by_hand(group, own, keys, values, scores))
    if groups.in_order:
        output = parts[0] if len(parts) == 1 else torch.cat(parts)
    else:
        output = queries.new_empty(rows * columns, heads, value.shape[-1])
        for group, part in zip(groups.members, parts, strict=True):
            output[group.queries] = part
    return output.view(rows, columns, heads, -1)


def _attend_once(
    group: Group, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """Fused attention where every sequence of the step has one query and all attend in one call, as most
    steps do. With few rows calling costs as much as computing, so no view is made on the way.

    Args:
        query: `[B, heads, L, dim]`, B or L being 1.

    Returns:
        `[S, kv_heads, heads a key head, value_dim]`.
    """
    rows, heads, _, dim = query.shape
    kv_heads = keys.shape[0]
    of_row, of_head, of_column, of_number = query.stride()
    per_kv = heads // kv_heads
    return scaled_dot_product_attention(
        query.as_strided(
            (group.num_sequences, kv_heads, per_kv, dim),
            (of_column if rows == 1 else of_row, per_kv * of_head, of_head, of_number),
        ),
        group.read(keys),
        group.read(values),
        attn_mask=group.bias,
        scale=scale,
    )


def _attend(
    group: Group, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """Fused attention of a group's `[S * L, heads, dim]` queries; returns `[S * L, heads, value_dim]`.

    Query heads that share a key head are grouped by reshaping the queries, so keys are never repeated.
    """
    heads, kv_heads = queries.shape[1], keys.shape[0]
    per_kv = heads // kv_heads
    s, n = group.num_sequences, group.num_queries
    own_keys, own_values = group.read(keys), group.read(values)
    if n == 1:
        out = scaled_dot_product_attention(
            queries.view(s, kv_heads, per_kv, -1),
            own_keys,
            own_values,
            attn_mask=group.bias,
            scale=scale,
        )
        return out.reshape(s, heads, -1)
    q = queries.view(s, n, kv_heads, per_kv, -1)
    if s == 1:
        # Key heads stand on the batch axis; their keys are seen by all their query heads with stride 0.
        out = scaled_dot_product_attention(
            q[0].permute(1, 2, 0, 3),
            own_keys[0].unsqueeze(1).expand(-1, per_kv, -1, -1),
            own_values[0].unsqueeze(1).expand(-1, per_kv, -1, -1),
            attn_mask=group.bias,
            is_causal=group.causal,
            scale=scale,
        )
        return out.permute(2, 0, 1, 3).reshape(n, heads, -1)
    out = scaled_dot_product_attention(
        q.permute(0, 2, 3, 1, 4).reshape(s, kv_heads, per_kv * n, -1),
        own_keys,
        own_values,
        attn_mask=group.stacked_bias(per_kv),
        scale=scale,
    )
    return out.view(s, kv_heads, per_kv, n, -1).permute(0, 3, 1, 2, 4).reshape(s * n, heads, -1)


def _attend_by_hand(
    group: Group,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scoring: Scores,
) -> torch.Tensor:
    """As `_attend`, in plain products, for scores the fused kernel cannot change."""
    scale, softcap, sinks = scoring
    heads, kv_heads = queries.shape[1], keys.shape[0]
    s, n, k = group.num_sequences, group.num_queries, group.num_keys
    q = queries.view(s, n, heads, -1).transpose(1, 2)
    repeats = heads // kv_heads
    own_keys = group.read(keys).repeat_interleave(repeats, dim=1)
    own_values = group.read(values).repeat_interleave(repeats, dim=1)
    scores = q @ own_keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if group.bias is not None:
        scores = scores + group.bias
    elif group.causal:
        after = torch.ones(n, k, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(after, float("-inf"))
    if sinks is not None:
        sink = sinks.view(1, heads, 1, 1).expand(s, heads, n, 1).to(scores.dtype)
        scores = torch.cat([scores, sink], dim=-1)
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=precise)[..., :k].to(own_values.dtype)
    return (weights @ own_values).transpose(1, 2).reshape(s * n, heads, -1)


def _refuse_unknown(module: torch.nn.Module, keywords: dict[str, Any]) -> None:
    """A tensor under a name not known here may be a position bias or a mask: never ignore it."""
    for name, value in keywords.items():
        if isinstance(value, torch.Tensor) and name not in _HARMLESS:
            raise UnsupportedAttention(
                f"{type(module).__name__} gives its attention {name!r}, which is not supported"
            )
    if keywords.get("is_causal") is False:
        raise UnsupportedAttention(f"{type(module).__name__} asks for attention that is not causal")


AttentionInterface.register(SEGMENT_ATTENTION, segment_attention)
