from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.layouts import largest_count, step_cost

layouts = st.sampled_from(["ragged", "padded"])


def test_a_row_costs_its_tokens_and_a_rectangle_rows_times_longest() -> None:
    assert step_cost("ragged", [10, 1, 1]) == 12
    assert step_cost("padded", [10, 1, 1]) == 30
    assert step_cost("ragged", []) == step_cost("padded", []) == 0


@given(layouts, st.lists(st.integers(1, 20), max_size=6), st.integers(1, 100))
def test_largest_count_fits_and_one_more_does_not(layout: str, counts: list[int], budget: int) -> None:
    count = largest_count(layout, len(counts), sum(counts), max(counts, default=0), budget)
    if count:
        assert step_cost(layout, [*counts, count]) <= budget
    assert step_cost(layout, [*counts, count + 1]) > budget
