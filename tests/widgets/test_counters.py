"""The counters: named figures, each rate with its window, and what stays when room is short."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from cbtui.looks.bars import bar, gauge, sparkline
from cbtui.looks.pieces import line_width, plain
from cbtui.telling.words import percent, rate, seconds
from cbtui.widgets.counters import counter_lines, counters_line
from tests.widgets.stage import Stage


def test_all_figures_of_a_static_run() -> None:
    frame = Stage("static").tutorial().drain().frame()
    text = "\n".join(plain(line) for line in counter_lines(frame, 46, 9))
    for part in ("tok/s", "steps/s (5 s)", "occupancy", "42 %", "dead work", "56 %", "TTFT p50", "TPOT p50"):
        assert part in text
    assert "done 6 of 6  ·  611 tokens in 480 steps" in text


@pytest.mark.parametrize(
    ("figures", "is_counted"),
    [
        ((("recording: lines lost", 0.0),), False),
        ((("n_decode_total", 40.0), ("tokens_predicted_total", None)), True),
    ],
)
def test_a_servers_own_counts_are_shown_where_it_counts(
    figures: tuple[tuple[str, float | None], ...], is_counted: bool
) -> None:
    frame = Stage().tutorial().step(7).frame("running")
    frame = dataclasses.replace(frame, metrics=msgspec.structs.replace(frame.metrics, figures=figures))
    text = "\n".join(plain(line) for line in counter_lines(frame, 60, 20))
    assert ("the server since its start: 40 steps" in text) == is_counted and (
        "the server" in text
    ) == is_counted


def test_before_the_first_step_no_time_is_told() -> None:
    frame = Stage().tutorial().frame()
    frame = dataclasses.replace(frame, metrics=msgspec.structs.replace(frame.metrics, num_requests=6))
    text = "\n".join(plain(line) for line in counter_lines(frame, 46, 9))
    assert "TTFT p50 –" in text and "this step –" in text


@pytest.mark.parametrize("height", [5, 7, 8, 9, 20])
@pytest.mark.parametrize("cells", [40, 46, 60, 90])
def test_lines_fit(height: int, cells: int) -> None:
    frame = Stage().tutorial().step(7).frame("running")
    lines = counter_lines(frame, cells, height)
    assert len(lines) <= height
    assert all(line_width(line) <= cells for line in lines)


def test_while_paused_the_figures_stay_dimmed() -> None:
    stage = Stage().tutorial().step(7)
    running = counter_lines(stage.frame("running"), 46, 9)
    paused = counter_lines(stage.frame("paused"), 46, 9)
    assert [plain(line) for line in running] == [plain(line) for line in paused]
    assert any(style == "strong" for line in running for _, style in line)
    assert not any(style in ("strong", "") and text.strip() for line in paused for text, style in line)


@pytest.mark.parametrize("cells", [30, 60, 78, 118])
def test_the_one_line_variant_drops_whole_figures(cells: int) -> None:
    line = counters_line(Stage().tutorial().step(7).frame("running"), cells)
    assert line_width(line) <= cells
    assert "tok/s (5 s)" in plain(line) and not plain(line).endswith("…")


def test_nothing_yet() -> None:
    assert plain(counter_lines(Stage().frame(), 46, 9)[0]) == " Speed, waiting times, wasted work"


def test_a_bar_shows_something_for_almost_nothing_and_is_full_only_at_the_whole() -> None:
    assert plain(bar(0.0, 10)) == "·" * 10
    assert plain(bar(0.001, 10)) == "▏" + "·" * 9
    assert plain(bar(0.999, 10)) == "█" * 9 + "▉"
    assert plain(bar(1.0, 10)) == "█" * 10
    assert plain(gauge(0.0, 4)) == "────" and plain(gauge(0.99, 4)) == "━━━╸" and plain(gauge(1, 4)) == "━━━━"


def test_a_sparkline_is_as_wide_as_asked_and_scaled_to_its_top() -> None:
    assert sparkline([1, 2, 4, 8], 6) == "  ▁▂▄█"
    assert sparkline([0, 0], 3) == " ▁▁"
    assert sparkline([], 3) == "   "


def test_figures_in_words() -> None:
    assert [seconds(s) for s in (None, 0.004, 0.055, 1.94, 151.2, 700)] == [
        "–",
        "4.0 ms",
        "55 ms",
        "1.9 s",
        "151 s",
        "12 min",
    ]
    assert [percent(s) for s in (0, 0.001, 0.424, 0.999, 1)] == ["0 %", "<1 %", "42 %", ">99 %", "100 %"]
    assert [rate(r) for r in (None, 54.24, 1631.2)] == ["–", "54.2", "1,631"]
