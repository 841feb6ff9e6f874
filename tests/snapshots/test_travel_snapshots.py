"""Pictures of looking back, of one request in full, of the KV blocks and of a zoomed timeline."""

from __future__ import annotations

import pytest

from tests.snapshots.test_snapshots import LARGE, MEDIUM, SMALL, Picture, drained, pressing, running, screen


@pytest.mark.parametrize("size", [LARGE, MEDIUM, SMALL])
def test_looking_back(snap_compare: Picture, size: tuple[int, int]) -> None:
    keys = ("left_curly_bracket",) * 4
    assert snap_compare(screen(running(step=40)), terminal_size=size, run_before=pressing(*keys))


def test_looking_back_at_an_earlier_run(snap_compare: Picture) -> None:
    keys = ("0", "right_curly_bracket", "right_curly_bracket")
    assert snap_compare(screen(drained()), terminal_size=LARGE, run_before=pressing(*keys))


def test_the_number_of_a_step_is_asked_for(snap_compare: Picture) -> None:
    assert snap_compare(screen(running(step=40)), terminal_size=MEDIUM, run_before=pressing("colon"))


def test_run_until_what(snap_compare: Picture) -> None:
    assert snap_compare(screen(running(step=40)), terminal_size=MEDIUM, run_before=pressing("u"))


@pytest.mark.parametrize("size", [LARGE, MEDIUM, SMALL])
def test_a_request_in_full(snap_compare: Picture, size: tuple[int, int]) -> None:
    keys = ("down", "down", "enter")
    assert snap_compare(screen(running("static", step=30)), terminal_size=size, run_before=pressing(*keys))


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_kv_blocks(snap_compare: Picture, size: tuple[int, int]) -> None:
    assert snap_compare(screen(running("static", step=30)), terminal_size=size, run_before=pressing("k"))


def test_a_zoomed_timeline(snap_compare: Picture) -> None:
    """At this width the whole takes two steps a column."""
    assert snap_compare(
        screen(running("static", step=78)), terminal_size=(80, 24), run_before=pressing("3", "0", "t")
    )
