"""The cache folder: one process at a time, the user's only, and what is said where it cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tiny_model import Bench, assert_prepared_cleanly, copies

from engine.model_store import cache, cache_root
from engine.model_store.prepare import Tools, prepare
from engine.runner import Loading, ModelLoadError


def test_two_at_once_convert_once(bench: Bench) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slowly(gguf: Path, folder: Path, report: Callable[[str, int, int], None]) -> None:
        inside.set()
        assert go_on.wait(10)
        bench.convert(gguf, folder, report)

    first = threading.Thread(target=bench.prepare, kwargs={"convert": slowly})
    first.start()
    assert inside.wait(10)
    waits: list[str] = []

    def second_progress(loading: Loading) -> None:
        waits.append(loading.stage)
        go_on.set()

    tools = Tools(installers=bench.installers, convert=bench.convert)
    folder = prepare(bench.bundle, bench.root, second_progress, tools)
    first.join()
    assert_prepared_cleanly(bench, folder)
    assert bench.conversions == 1
    assert f"(process {os.getpid()})" in waits[0]
    assert all("waiting" in stage for stage in waits)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        f"import sys, time; from pathlib import Path; from engine.model_store.cache import exclusive\n"
        f"with exclusive(Path({str(lock)!r}), print): print('held', flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    waits: list[str] = []

    def waiting(pid: str) -> None:
        waits.append(pid)
        holder.kill()
        holder.wait()

    with cache.exclusive(lock, waiting) as held:
        assert held
    holder.stdout.close()
    assert waits[0] == str(holder.pid)


def test_a_full_disk_is_said_before_anything_is_fetched(bench: Bench) -> None:
    bench.bundle = msgspec.structs.replace(bench.bundle, converted_bytes=10**18)
    with pytest.raises(ModelLoadError, match="MB are free"):
        bench.prepare()
    assert bench.fetches == 0


def test_a_cache_folder_that_cannot_be_written_is_said(bench: Bench) -> None:
    bench.root.write_text("a file where the folder should be")
    with pytest.raises(ModelLoadError, match="cannot write to the cache folder") as caught:
        bench.prepare()
    assert "CBTUI_CACHE_DIR" in caught.value.hint


def test_an_unwritable_file_system_without_locks_still_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_lock", lambda descriptor, waiting: False)
    assert_prepared_cleanly(bench, bench.prepare())


def test_the_cache_folder_follows_its_variable(as_default: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == as_default.root
    monkeypatch.delenv("CBTUI_CACHE_DIR")
    assert cache_root().name == "cbtui"


def test_what_is_kept_is_the_users_only(as_default: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    was = os.umask(0o000)
    try:
        folder = as_default.prepare()
    finally:
        os.umask(was)
    for path in [as_default.root, as_default.models, folder]:
        assert path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_cache_folder_an_earlier_version_left_open_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CBTUI_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache.platformdirs, "user_cache_dir", lambda *_: str(tmp_path / "cbtui"))
    (tmp_path / "cbtui").mkdir(mode=0o755)
    cache.private_folder(tmp_path / "cbtui" / "models")
    assert (tmp_path / "cbtui").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(tmp_path / "shared"))
    cache.private_folder(tmp_path / "shared" / "models")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o770


def test_two_processes_on_an_empty_cache_one_prepares_and_the_other_says_that_it_waits(bench: Bench) -> None:
    """Each in a process of its own; the conversion waits until the other process is there."""
    bench.installers = copies(bench)  # type: ignore[method-assign]
    done = bench.shelf / "converted"

    def convert(gguf: Path, folder: Path, report: Callable[[str, int, int], None]) -> None:
        with done.open("a") as file:
            file.write("x")
        deadline = time.monotonic() + 20
        while not list(bench.shelf.glob("waits-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        bench.convert(gguf, folder, report)

    def progress(loading: Loading) -> None:
        if "waiting for it" in loading.stage:
            (bench.shelf / f"waits-{os.getpid()}").touch()

    bench.progress = progress  # type: ignore[method-assign]
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                folder = bench.prepare(convert=convert)
                code = 0 if not cache.flaw(folder, bench.bundle.gguf_sha256) else 2
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    assert done.read_text() == "x", "one of them converted"
    assert len(list(bench.shelf.glob("waits-*"))) == 1, "and the other waited and said so"
    assert bench.leftovers() == [bench.bundle.folder_name]
