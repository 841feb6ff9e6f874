"""`cbtui launch FILE` and `cbtui race FILE`: what the screen is opened with, and what is said afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cbtui.options import LaunchOptions
from tests.cli.conftest import Ended

DATA = Path(__file__).parent.parent / "data" / "workloads"
Cbtui = Callable[..., Ended]


def test_launch_begins_with_a_file(cbtui: Cbtui, opened: list[LaunchOptions]) -> None:
    ended = cbtui(
        "launch", str(DATA / "azure_trace.csv"), "--arrivals", "10", "--limit", "3", "--record", "a.gz"
    )
    assert (ended.code, ended.err) == (0, "")
    (options,) = opened
    assert [request.max_tokens for request in options.requests] == [8, 32, 64]
    assert (options.arrivals, options.record, options.max_tokens) == (10.0, Path("a.gz"), 64)


def test_bad_lines_are_said_after_the_screen_and_the_code_is_1(
    cbtui: Cbtui, opened: list[LaunchOptions]
) -> None:
    for command in ("launch", "race"):
        ended = cbtui(command, str(DATA / "sharegpt.json"))
        assert ended.code == 1 and ended.err.count("entry") == 2
    assert len(opened[0].requests) == len(opened[1].race) == 2


def test_max_tokens_caps_a_file_only_where_the_command_line_says_so(
    cbtui: Cbtui, opened: list[LaunchOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbtui.__main__._defaults", lambda: {"launch": {"max_tokens": 7}})
    cbtui("launch", str(DATA / "tutorial.jsonl"))
    cbtui("launch", str(DATA / "tutorial.jsonl"), "--max-tokens", "9")
    assert [max(request.max_tokens for request in options.requests) for options in opened] == [300, 9]
    assert [options.max_tokens for options in opened] == [7, 9]


def test_replay_opens_where_it_is_asked_to(cbtui: Cbtui, opened: list[LaunchOptions]) -> None:
    trace = Path(__file__).parent.parent / "data" / "trace-static.jsonl"
    assert cbtui("replay", str(trace), "--at", "end").code == 0
    assert cbtui("replay", str(trace), "--speed", "max").code == 0
    assert [(one.paused, one.replay_upto, one.speed) for one in opened] == [
        (True, float("inf"), 8.0),
        (False, 0, None),
    ]
    bad = cbtui("replay", str(trace), "--at", "then")
    assert bad.code == 2 and "--at must be the number of a step, or end, not then" in bad.err


def test_a_trace_is_no_request_file(cbtui: Cbtui) -> None:
    ended = cbtui("run", str(Path(__file__).parent.parent / "data" / "trace-static.jsonl"))
    assert ended.code == 2 and "is a recorded run: `cbtui replay` shows it" in ended.err
