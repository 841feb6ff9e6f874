"""`cbtui bench` on a fake model: it runs, and what it prints has the right shape. Nothing is timed here."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]


def test_it_prints_a_line_for_each_mode_and_batch_size(cbtui: Cbtui):
    ended = cbtui("bench", "--slots", "1,3", "--cached", "20,40")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    modes = [line[:2] for line in lines if len(line) == 7 and line[0] in "13"]
    names = ["static", "continuous-padded", "continuous"]
    assert modes == [[slots, mode] for slots in "13" for mode in names]
    assert [line[0] for line in lines if "cached" in line and "each" in line] == ["20", "40"]
    assert max(len(line) for line in ended.out.splitlines()[2:]) <= 80
    assert ended.runner is not None and ended.runner.is_closed


def test_json_carries_steps_seconds_and_the_machine(cbtui: Cbtui):
    result = json.loads(cbtui("bench", "--json", "--slots", "3", "--cached", "20").out)
    static, padded, continuous = result["modes"]
    assert static["steps"] > continuous["steps"] == padded["steps"]
    assert static["output_tokens"] == continuous["output_tokens"] == 8 + 32 + 16 + 48 + 8 + 32
    assert all(line["seconds"] > 0 and line["tokens_per_s"] > 0 for line in result["modes"])
    assert result["growth"] == [
        {"sequences": 4, "cached_tokens": 20, "step_ms": result["growth"][0]["step_ms"]}
    ]
    assert {"processor", "cores", "load", "dtype", "threads"} <= set(result["machine"])


def test_lengths_the_model_does_not_reach_are_left_out(cbtui: Cbtui):
    result = json.loads(cbtui("bench", "--json", "--slots", "1", "--cached", "20,100000000").out)
    assert [line["cached_tokens"] for line in result["growth"]] == [20]


@pytest.mark.parametrize("sizes", ["", "0", "1,x", "-1"])
def test_sizes_must_be_numbers(cbtui: Cbtui, sizes: str):
    ended = cbtui("bench", f"--slots={sizes}")
    assert ended.code != 0 and "--slots" in ended.err
    assert ended.runner is None
