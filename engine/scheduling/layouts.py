"""What a step costs: the token positions its tensor would hold, by layout.

The budget is kept by asking for the largest count that still fits, never by subtraction: in a
rectangle one longer row makes every row longer (the pricing is TGI's).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.step.plan import Layout


def step_cost(layout: Layout, counts: Sequence[int]) -> int:
    """Token positions of a step with these tokens a row: the sum, or rows x longest."""
    if not counts:
        return 0
    return sum(counts) if layout == "ragged" else len(counts) * max(counts)


def largest_count(layout: Layout, num_rows: int, num_tokens: int, longest: int, budget: int) -> int:
    """The most tokens one more row may have beside `num_rows` rows; 0 if not even one.

    Args:
        num_tokens: sum of the tokens of the rows there are.
        longest: tokens of the longest of them.
        budget: `max_num_batched_tokens`.
    """
    if layout == "ragged":
        return max(0, budget - num_tokens)
    width = budget // (num_rows + 1)
    return width if width >= longest else 0
