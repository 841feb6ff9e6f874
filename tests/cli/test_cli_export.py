"""`cbtui export`: every format from the command line, in any compression, and what is said when it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended

Cbtui = Callable[..., Ended]
DATA = Path(__file__).parents[1] / "data"
TRACE = DATA / "trace-static.jsonl"
VLLM = DATA / "attach" / "vllm-tutorial.jsonl"


@pytest.mark.parametrize(
    ("to", "begins"),
    [("perfetto", b'{"displayTimeUnit"'), ("svg", b"<svg "), ("html", b"<!doctype html>")],
)
def test_each_format_is_one_file_and_replaces_what_was_there(
    cbtui: Cbtui, tmp_path: Path, to: str, begins: bytes
) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    ended = cbtui("export", str(TRACE), "--to", to, "-o", str(out))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert out.read_bytes().startswith(begins)
    assert list(tmp_path.iterdir()) == [out]


def test_csv_is_a_folder_of_two_files(cbtui: Cbtui, tmp_path: Path) -> None:
    assert cbtui("export", str(TRACE), "--to", "csv", "-o", str(tmp_path / "a" / "b")).code == 0
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"requests.csv", "steps.csv"}


@pytest.mark.parametrize("how", ["gzip", "zstandard"])
@pytest.mark.parametrize("recording", [TRACE, VLLM], ids=["a trace", "a vLLM's"])
def test_compressed_recordings_give_the_same(cbtui: Cbtui, tmp_path: Path, recording: Path, how: str) -> None:
    packed = tmp_path / "a name that says nothing"
    packed.write_bytes(pytest.importorskip(how).compress(recording.read_bytes()))
    outs = [tmp_path / "plain", tmp_path / "packed"]
    for source, out in zip((recording, packed), outs, strict=True):
        assert cbtui("export", str(source), "--to", "perfetto", "-o", str(out)).code == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_broken_trace_is_exported_as_far_as_it_goes(cbtui: Cbtui, tmp_path: Path) -> None:
    broken, out = tmp_path / "a.trace", tmp_path / "out.json"
    broken.write_bytes(TRACE.read_bytes()[:-40])
    ended = cbtui("export", str(broken), "--to", "perfetto", "-o", str(out))
    assert ended.code == 1 and "cut off here; what stands before is exported" in ended.err
    steps = [e for e in json.loads(out.read_bytes())["traceEvents"] if e["name"].startswith("step ")]
    assert len(steps) == 77


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--to", "svg", "-o", "{out}"], "cannot read nowhere: No such file"),
        ([__file__, "--to", "svg", "-o", "{out}"], "line 1: "),
        (["{header}", "--to", "svg", "-o", "{out}"], "there is no step in the trace"),
        ([str(TRACE), "--to", "pdf", "-o", "{out}"], "--to must be one of perfetto, csv, svg, html, not pdf"),
        ([str(TRACE), "--to", "csv", "-o", "-"], "-o names a folder"),
        ([str(TRACE), "--to", "csv", "-o", "{file}"], "cannot write {file}: File exists"),
        ([str(TRACE), "--to", "svg", "-o", "{out}/a/b"], "/a/b: No such file or directory"),
        ([str(TRACE), "--to", "svg", "-o", "{folder}"], "{folder}: Is a directory"),
        ([str(TRACE), "--to", "svg", "-o", "/dev/full"], "cannot write /dev/full: No space left on device"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    cbtui: Cbtui, tmp_path: Path, arguments: list[str], words: str
) -> None:
    header, file, folder, out = (tmp_path / name for name in ("header", "file", "folder", "out"))
    header.write_bytes(TRACE.read_bytes().splitlines(keepends=True)[0])
    file.write_text("before")
    folder.mkdir()
    names = {"header": header, "file": file, "folder": folder, "out": out}
    ended = cbtui("export", *(argument.format(**names) for argument in arguments))
    assert ended.code == 2 and ended.err.count("\n") == 1
    assert words.format(**names) in ended.err
    assert file.read_text() == "before" and not out.exists()


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from cbtui.__main__ import run

    assert run(["export", str(TRACE), "--to", "svg", "-o", "-"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"<svg ")
