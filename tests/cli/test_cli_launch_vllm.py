"""`cbtui launch --engine vllm -- …`: what is asked of vLLM, and what is refused before the screen opens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cbtui.__main__ import run
from cbtui.cli.vllm_options import split_arguments
from cbtui.options import LaunchOptions
from tests.cli.conftest import Ended


@pytest.fixture
def executable(tmp_path: Path) -> str:
    path = tmp_path / "vllm"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_what_stands_behind_the_dashes_is_vllms(executable: str, opened: list[LaunchOptions]) -> None:
    arguments = ["launch", "--engine", "vllm", "--vllm", executable, "--raw", "--demo"]
    arguments += ["--history", "20", "--stories", "7", "--"]
    theirs = ["org/model", "--max-num-seqs", "3", "--tensor-parallel-size=2", "-q", "a b"]
    assert run(arguments + theirs) == 0
    (options,) = opened
    assert options.vllm is not None and options.vllm.executable == executable
    assert options.vllm.arguments == tuple(theirs)
    assert options.raw and options.demo and (options.history, options.stories) == (20, 7)


def test_without_a_model_it_serves_the_default_one(
    executable: str, opened: list[LaunchOptions], default_model_path: Path
) -> None:
    assert run(["launch", "--engine=vllm", "--vllm", executable, "--", "--dtype", "float32"]) == 0
    assert opened[0].vllm is not None
    assert opened[0].vllm.arguments[0] == str(default_model_path)
    assert opened[0].vllm.arguments[-2:] == ("--dtype", "float32")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "sglang"], "--engine must be one of cbtui, vllm, not sglang"),
        (["--vllm", "x"], "--vllm goes with --engine vllm"),
        (["--engine", "vllm", "--vllm", "/nowhere/vllm"], "/nowhere/vllm cannot be run"),
        (["--engine", "vllm", "--slots", "2"], "vLLM's is --max-num-seqs, behind --"),
        (["--engine", "vllm", "--exact"], "--exact is an option of cbtui's own engine"),
        (["--engine", "vllm", "--", "m", "--port", "80"], "vLLM's --port is set by cbtui"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    cbtui: Callable[..., Ended], arguments: list[str], sentence: str
) -> None:
    ended = cbtui("launch", *arguments)
    assert ended.code == 2 and sentence in ended.err
    assert ended.err.startswith("cbtui: ") and ended.err.count("\n") == 1


def test_for_any_other_command_two_dashes_are_what_they_always_are() -> None:
    for arguments in (["launch", "--", "file"], ["run", "--engine", "vllm", "--", "x"], ["launch"]):
        assert split_arguments(arguments) == arguments


def test_the_line_to_use(cbtui: Callable[..., Ended]) -> None:
    ended = cbtui("attach", "--vllm-line")
    assert ended.code == 0
    assert ended.out.startswith("PYTHONPATH=")
    assert ended.out.endswith(" vllm serve MODEL --scheduler-cls cbtui_vllm.scheduler.RecordingScheduler\n")
