"""The files a model is loaded from, and whether they are still what they were.

Weights may be read from the file while the model runs (safetensors are mapped into memory), so a file that is
written to changes the model under its requests. A file that is replaced by another one changes nothing:
what is mapped is the old one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

#: What a model's folder holds of it: weights, config, tokenizer. Other files may come and go.
_MODEL_SUFFIXES = frozenset(
    {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".json", ".jinja", ".model", ".txt", ".py"}
)


def fingerprint(path: Path) -> str:
    """Of a model's folder or file as it is now: the names, sizes, times and places of its files.

    Contents are not read, for they may be gigabytes. A file that was written to or replaced has another time
    or place.
    """
    files = [path]
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix in _MODEL_SUFFIXES and one.is_file())
    said = hashlib.sha256()
    for file in files:
        found = file.stat()
        said.update(repr((file.name, found.st_size, found.st_mtime_ns, found.st_ino)).encode())
    return said.hexdigest()


def weight_files(path: Path) -> list[Path]:
    """The weights in a model's folder that are mapped; a GGUF file is read once and for all."""
    return sorted(one for one in path.glob("*.safetensors") if one.is_file())


class LoadedFiles:
    """Watches files by descriptors of their own.

    Args:
        paths: files as they are now.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._open = {path: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths}
        self._were = {path: _stamp(fd) for path, fd in self._open.items()}

    def changed(self) -> Path | None:
        """A file that was written to since; None: none was. Takes microseconds."""
        return next((path for path, fd in self._open.items() if _stamp(fd) != self._were[path]), None)

    def close(self) -> None:
        """Let go of them; twice too."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()


def _stamp(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns
