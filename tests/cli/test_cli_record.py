"""Recording runs from the command line, comparing the traces, and what is said of files that are none."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.stream.records import StepRecord
from engine.stream.trace_files import read_trace
from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]


@pytest.mark.parametrize("name", ["run.trace", "run.jsonl.gz"])
def test_a_run_is_recorded(cbtui: Cbtui, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ended = cbtui("run", "--record", str(path), "--json", "--max-tokens", "5", stdin=b"The capital\nis so\n")
    assert ended.code == 0
    trace = read_trace(path)
    assert (trace.header.model, trace.error) == ("fake", "")
    assert sum(isinstance(record, StepRecord) for record in trace.records) == 5
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_each_mode_of_a_comparison_has_a_trace_and_they_compare_alike(cbtui: Cbtui, tmp_path: Path) -> None:
    live = cbtui(
        "compare", "--record", str(tmp_path / "t.jsonl.gz"), "--json", "--modes", "static,continuous"
    )
    paths = [str(tmp_path / f"t-{mode}.jsonl.gz") for mode in ("static", "continuous")]
    again = cbtui("compare", *paths, "--json")
    assert (live.code, again.code, again.err, again.runner) == (0, 0, "", None) or again.runner is None
    assert json.loads(again.out)["modes"] == json.loads(live.out)["modes"]
    assert json.loads(again.out)["identical"]
    report = cbtui("compare", *paths).out
    assert "static, fake, cpu float32" in report


def test_two_runs_in_one_mode_are_called_by_their_files(cbtui: Cbtui, tmp_path: Path) -> None:
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    for path in paths:
        cbtui("run", "--record", str(path), "--raw", "--max-tokens", "3", stdin=b"The\n")
    ended = cbtui("compare", *map(str, paths), "--json")
    assert ended.code == 0 and list(json.loads(ended.out)["modes"]) == ["a.trace", "b.trace"]
    cbtui("run", "--record", str(paths[1]), "--raw", "--max-tokens", "3", stdin=b"is so\n")
    other = cbtui("compare", *map(str, paths))
    assert other.code == 2 and "did not run the same requests" in other.err


def test_two_batch_sizes_are_told_apart(cbtui: Cbtui, tmp_path: Path) -> None:
    paths = [tmp_path / "one.trace", tmp_path / "two.trace"]
    for slots, path in enumerate(paths, 1):
        cbtui("run", "--record", str(path), "--slots", str(slots), "--max-tokens", "3", stdin=b"The\nis so\n")
    report = cbtui("compare", *map(str, paths)).out
    assert "The same 2 requests, in 2 ways" in report and "1 slot, continuous, fake" in report
    assert "Slots: 1 against 2." in report and "barrier" not in report


def test_a_broken_trace_is_compared_as_far_as_it_goes(cbtui: Cbtui, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    cbtui("run", "--record", str(path), "--raw", "--max-tokens", "3", stdin=b"The\n")
    path.write_bytes(path.read_bytes()[:-20])
    ended = cbtui("compare", str(path), "--json")
    assert ended.code == 1 and "line 4: the trace is cut off here" in ended.err


def test_a_trace_cut_off_between_two_lines_is_not_taken_for_whole(cbtui: Cbtui, tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    cbtui("run", "--record", str(path), "--raw", "--max-tokens", "9", stdin=b"The\nso\n")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    ended = cbtui("compare", str(path), "--json")
    assert ended.code == 0 and "ends with 2 of its requests unfinished, so it was cut short" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "nowhere"], "cannot read nowhere: No such file"),
        (["replay", "{text}"], "prompts.txt, line 1: "),
        (["replay", "{trace}", "--at", "then"], "--at must be the number of a step, or end, not then"),
        (["replay", "{trace}", "--at", "1"], "the screen needs a terminal"),
        (["compare", "{trace}", "{text}"], "is no trace: several files must all be recorded runs"),
        (["run", "{text}", "--record", "/nowhere/at/all"], "cannot write /nowhere/at/all: No such file"),
    ],
)
def test_files_that_are_none_are_said(cbtui: Cbtui, tmp_path: Path, arguments: list[str], words: str) -> None:
    text, trace = tmp_path / "prompts.txt", tmp_path / "a.trace"
    text.write_text("The\n")
    cbtui("run", "--record", str(trace), "--max-tokens", "2", stdin=b"The\n")
    ended = cbtui(*(argument.format(text=text, trace=trace) for argument in arguments))
    assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1


def test_zstandard_is_used_or_asked_for(cbtui: Cbtui, tmp_path: Path) -> None:
    path = tmp_path / "a.trace.zst"
    ended = cbtui("run", "--record", str(path), "--max-tokens", "2", stdin=b"The\n")
    try:
        import zstandard  # noqa: F401
    except ImportError:
        assert ended.code == 2 and "needs the package zstandard" in ended.err
    else:
        assert ended.code == 0 and read_trace(path).error == ""


def test_what_a_crash_leaves_can_be_read(tmp_path: Path) -> None:
    """The process is killed between two steps: every whole step is there."""
    path = tmp_path / "a.trace.gz"
    code = f"""
import os
from pathlib import Path
from engine.stream.records import SCHEMA_VERSION, QuietRecord, Events, TraceHeader
from engine.stream.trace_files import TraceRecorder
recorder = TraceRecorder(Path({str(path)!r}))
recorder.begin(TraceHeader(SCHEMA_VERSION, "m"))
for step in range(5):
    recorder.write(QuietRecord(step, 0.0, Events(errors=("x",))))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 9
    trace = read_trace(path)
    assert [record.step for record in trace.records] == [0, 1, 2, 3, 4]
    assert "cut off" in trace.error
    with gzip.open(path) as file, pytest.raises(EOFError):
        file.read()


def test_a_full_disk_ends_the_recording_and_every_request_is_answered(cbtui: Cbtui) -> None:
    ended = cbtui("run", "-", "--json", "--record", "/dev/full", stdin=b"a\nb\nc\n")
    assert [json.loads(line)["finish_reason"] for line in ended.out.splitlines()] == ["length"] * 3
    assert ended.err.count("No space left on device") == 1 and "Traceback" not in ended.err
    assert ended.code == 1
