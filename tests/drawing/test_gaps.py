"""Gaps between tokens as columns on one scale."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cbtui.drawing.gaps import all_gaps, binned
from cbtui.looks.pieces import line_width, plain


def test_the_largest_gap_is_full_height_and_named() -> None:
    lines = [plain(line) for line in all_gaps([0.05, 0.05, 0.2, 0.05], "#56b4e9", 40, 4)]
    assert lines == ["0.2 s ▏  █ ", "      ▏  █ ", "      ▏  █ ", "    0 ▏████"]


def test_nothing_is_no_plot() -> None:
    assert all_gaps([], "#56b4e9", 40, 4) == []
    assert all_gaps([0.0, 0.0], "#56b4e9", 40, 4) == []


@given(st.lists(st.floats(0.001, 9), min_size=1, max_size=300), st.integers(1, 80))
def test_more_gaps_than_columns_lose_no_spike(values: list[float], columns: int) -> None:
    shown = binned(values, columns)
    assert len(shown) == min(columns, len(values)) and max(shown) == max(values)


@given(st.lists(st.floats(0.001, 9), min_size=1, max_size=300), st.integers(12, 80), st.integers(1, 8))
def test_the_plot_fits(values: list[float], cells: int, height: int) -> None:
    lines = all_gaps(values, "#56b4e9", cells, height)
    assert len(lines) == height and all(line_width(line) <= cells for line in lines)
