"""The mixed workload in a small KV cache: requests give way to each other in every mode, and nobody's
output notices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]
MIXED = str(Path(__file__).parents[1] / "data" / "mixed24.jsonl")
MODES = ["static", "continuous-padded", "continuous", "chunked"]
TIGHT = "--slots 6 --num-blocks 64 --block-size 4 --ignore-eos --json".split()


def compared(cbtui: Cbtui, *options: str, **more: Any) -> dict[str, Any]:
    ended = cbtui("compare", MIXED, "--modes", ",".join(MODES), *TIGHT, *options, **more)
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--budget", "24"],
        ["--prefix-caching"],
        ["--policy", "shortest-first"],
        ["--policy", "priority", "--prefix-caching", "--budget", "16"],
    ],
    ids=" ".join,
)
def test_outputs_are_identical_in_all_modes_though_requests_give_way(cbtui: Cbtui, options: list[str]):
    data = compared(cbtui, *options)
    assert data["identical"] is True and data["verdict"] == "identical"
    assert list(data["modes"]) == MODES
    for mode, result in data["modes"].items():
        assert result["steps"] > 0 and set(result["finish_reasons"]) == {"length"}
        # A small budget holds so few rows of a rectangle that a wave has the cache to itself.
        assert result["preemptions"] > 0 or (mode == "static" and "--budget" in options), mode


def test_every_setting_gives_the_same_outputs(cbtui: Cbtui):
    settings = [
        [],
        ["--budget", "20"],
        ["--prefix-caching"],
        ["--policy", "shortest-first"],
        ["--slots", "2"],
    ]
    outputs = [compared(cbtui, *options)["modes"]["chunked"]["token_ids"] for options in settings]
    assert all(each == outputs[0] for each in outputs)


def test_the_same_prompts_again_are_found_in_shared_blocks(cbtui: Cbtui):
    text = Path(MIXED).read_bytes()
    ended = cbtui(
        "compare",
        "-",
        "--modes",
        "continuous",
        "--prefix-caching",
        "--json",
        "--block-size",
        "4",
        stdin=text * 2,
    )
    (result,) = json.loads(ended.out)["modes"].values()
    assert result["cached_tokens"] > 100
    assert result["token_ids"][:24] == result["token_ids"][24:]


def test_the_report_says_how_many_gave_way_and_what_was_reused(cbtui: Cbtui):
    out = cbtui("compare", MIXED, "--modes", "continuous,chunked", "--prefix-caching", *TIGHT[:-1]).out
    assert "preemptions / tokens fed again" in out and "prefix tokens reused" in out
    assert "computed tokens lost" in out


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize("options", ["", "--prefix-caching --budget 64"])
def test_the_default_model_gives_identical_float32_outputs_in_all_modes(
    options: str, capsys: pytest.CaptureFixture[str]
):
    from cbtui.__main__ import run

    code = run(["compare", MIXED, "--modes", ",".join(MODES), *TIGHT, *options.split()])
    data = json.loads(capsys.readouterr().out)
    assert code == 0 and data["identical"] is True and data["dtype"] == "float32"
    assert [len(ids) for ids in data["modes"]["static"]["token_ids"]] == [
        request["max_tokens"] for request in data["requests"]
    ]
    for mode in MODES if not options else ["continuous", "chunked"]:
        assert data["modes"][mode]["preemptions"] > 0, mode
