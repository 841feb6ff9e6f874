from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest

from engine.logs import log_path
from engine.worker.log import LogStream, WorkerLog
from tests.hostile import HOSTILE


def printed(log: WorkerLog, text: bytes) -> str:
    fd = log.open("epoch 1")
    os.write(fd, text)
    os.close(fd)
    return log.last_lines()


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_lines_of_this_start_are_quoted(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "new" / "worker.log")
    assert printed(log, b"first life\n") == "first life"
    assert printed(log, b"") == ""


def test_the_last_two_lines_stand_without_control_characters(tmp_path: Path) -> None:
    text = b"one\n\x1b[31mtwo\x1b[0m\x07\n\n  three \xff\n\n"
    assert printed(WorkerLog(tmp_path / "worker.log"), text) == "two / three �"


def test_a_long_line_is_cut_and_a_long_log_is_not_read_whole(tmp_path: Path) -> None:
    text = b"x" * 5_000_000 + b"\nend\n"
    assert len(printed(WorkerLog(tmp_path / "worker.log"), text)) < 300


def test_the_stacks_of_a_fatal_signal_stay_in_the_file(tmp_path: Path) -> None:
    text = b"warning\nFatal Python error: Segmentation fault\n\nThread 0x1:\n  File ...\n"
    assert printed(WorkerLog(tmp_path / "worker.log"), text) == "warning"


def test_a_log_that_was_emptied_or_removed_is_no_error(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "worker.log")
    printed(log, b"")
    os.truncate(log.path, 0)
    assert log.last_lines() == ""
    log.path.unlink()
    assert log.last_lines() == ""


def test_the_newest_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path))
    folder = log_path("worker").parent
    for i in range(20):
        path = folder / f"worker-{i}.log"
        path.touch()
        os.utime(path, (i, i))
    assert log_path("worker").parent == folder
    assert sorted(p.name for p in folder.iterdir()) == [f"worker-{i}.log" for i in range(13, 20)]


def test_where_the_cache_folder_cannot_be_made_the_log_is_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    log = WorkerLog(log_path("worker"))
    os.close(log.open("epoch 1"))
    assert log.path.parent.name.startswith("cbtui-") and rights(log.path.parent) == 0o700
    assert rights(log.path) == 0o600
    shutil.rmtree(log.path.parent)


def test_a_log_is_not_written_through_a_link_somebody_laid(tmp_path: Path) -> None:
    (tmp_path / "worker-1.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        WorkerLog(tmp_path / "worker-1.log").open("epoch 1")
    assert not (tmp_path / "precious").exists()


def test_what_a_cause_quotes_is_harmless_to_who_looks_at_the_log() -> None:
    raw = io.BytesIO()
    stream = LogStream(io.TextIOWrapper(raw))
    print(*HOSTILE, "\ud800", file=stream)
    print("na\u00efve \u96ea", file=stream)
    text = raw.getvalue().decode()
    assert not any((ord(one) < 32 and one not in "\n\t") or 0x7F <= ord(one) <= 0x9F for one in text)
    assert "\\x1b]0;a title\\x07" in text and "\u202e" not in text
    assert text.endswith("\\ud800\nna\u00efve \u96ea\n")
