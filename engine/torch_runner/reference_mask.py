"""The dense additive mask of a step, built the plain way: what every faster route is held against.

Deliberately shares no code with `engine.step.mask` nor with the groups of `step.py`.
"""

from __future__ import annotations

import torch

from engine.step.geometry import Geometry


def dense_mask(
    geometry: Geometry, window: int | None, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A 4-D additive mask: 0 where a query may attend, the type's minimum elsewhere.

    Additive because a boolean 4-D mask is silently wrong under a model's eager attention, which adds it.

    Args:
        geometry: the step laid out.
        window: how many keys back a query sees, its own included; None: all.

    Returns:
        `[1, 1, T, num_keys]` for a ragged step, `[B, 1, L, num_keys]` for a padded one.
    """
    rows, columns = geometry.shape
    allowed = torch.zeros(rows, columns, geometry.num_keys, dtype=torch.bool)
    owned = torch.zeros(rows, columns, dtype=torch.bool)
    for span in geometry.spans:
        num_cached = span.kv_len - span.q_len
        for offset in range(span.q_len):
            last = num_cached + offset
            first = 0 if window is None else max(0, last + 1 - window)
            query = span.q_start + offset
            allowed[span.row, query, span.kv_start + first : span.kv_start + last + 1] = True
            owned[span.row, query] = True
    for row in range(rows):
        for column in range(columns):
            if not owned[row, column]:
                allowed[row, column, 0] = True
    mask = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min)
    return mask.unsqueeze(1).to(device)
