"""The cache folder: where it is, whose turn it is, and whether a finished copy is whole.

Knows files, not models. Every finished folder carries a manifest that was written last, so a folder
without one, or one that does not match it, is a leftover and is made again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import platformdirs

MANIFEST_NAME = "cbtui-manifest.json"
#: Files up to this many bytes are checked by content at every start, larger ones by size only.
SMALL_FILE = 16 * 2**20
WORK_PREFIX = ".work-"
_CHUNK = 2**20
_LOCK_POLL_S = 0.2


def cache_root() -> Path:
    """The user's cache folder for this program; `CBTUI_CACHE_DIR` overrides it. It need not exist yet."""
    override = os.environ.get("CBTUI_CACHE_DIR")
    path = (
        Path(os.path.expanduser(override)) if override else Path(platformdirs.user_cache_dir("cbtui", False))
    )
    return path.absolute()


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone; prompts may end up in it.

    The program's own cache folder is closed to others where an earlier version left it open; one that
    `CBTUI_CACHE_DIR` names keeps the rights its owner gave it.

    Raises:
        OSError: it cannot be made.
    """
    for path in [*reversed(folder.parents), folder]:
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    root = cache_root()
    if not os.environ.get("CBTUI_CACHE_DIR") and root.is_dir():
        found = root.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            root.chmod(0o700)


def sha256(path: Path, report: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file, in hex; `report` is called with the bytes read so far."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if report is not None:
                report(done)
    return digest.hexdigest()


class FileNote(msgspec.Struct, frozen=True):
    """One file of a finished folder: its size in bytes and, for a small one, its SHA-256."""

    size: int
    sha256: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """What a finished folder holds. `source_sha256` is the file it was made from."""

    source_sha256: str
    files: dict[str, FileNote]
    version: int = 1


def seal(folder: Path, source_sha256: str) -> None:
    """Write the manifest of a folder and bring all of it to the disk, so that a rename publishes it whole."""
    notes: dict[str, FileNote] = {}
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        notes[path.name] = FileNote(size, sha256(path) if size <= SMALL_FILE else "")
        path.chmod(0o600)
        _to_disk(path)
    manifest = folder / MANIFEST_NAME
    manifest.write_bytes(msgspec.json.format(msgspec.json.encode(Manifest(source_sha256, notes))))
    manifest.chmod(0o600)
    _to_disk(manifest)


def flaw(folder: Path, source_sha256: str) -> str:
    """Why a folder cannot be used, in a few words; empty if it is whole. Takes some 10 ms."""
    if not folder.is_dir():
        return "not there"
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return "its manifest is missing or broken"
    if manifest.version != 1 or manifest.source_sha256 != source_sha256:
        return "it was made from another file"
    for name, note in manifest.files.items():
        path = folder / name
        try:
            if path.stat().st_size != note.size:
                return f"{name} has the wrong size"
            if note.sha256 and sha256(path) != note.sha256:
                return f"{name} has changed"
        except OSError:
            return f"{name} is missing"
    return ""


@contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """A folder for unfinished work, gone afterwards whatever happens (a kill leaves it to `sweep`)."""
    folder = Path(tempfile.mkdtemp(prefix=f"{WORK_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove what killed processes left behind. Only for the holder of the lock."""
    for leftover in parent.glob(f"{WORK_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def tidy(lock: Path, kept: Path) -> None:
    """Once a finished folder is there: remove what a process killed right after publishing it left behind.

    Looks first, so that a start from the cache costs one listing; does nothing while somebody prepares.

    Args:
        lock: what a preparing process holds.
        kept: the fetched file, which only an unfinished conversion needs.
    """
    if not kept.exists() and next(lock.parent.glob(f"{WORK_PREFIX}*"), None) is None:
        return
    try:
        with lock.open("a+") as file:
            if _lock(file.fileno(), None):
                sweep(lock.parent)
                kept.unlink(missing_ok=True)
    except OSError:
        return  # a cache that cannot be written is fine to read from


@contextmanager
def exclusive(path: Path, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock file at `path`; meanwhile other processes wait here.

    The lock is the kernel's (flock), so one whose holder died is free at once: there are no stale locks.
    `waiting` is called repeatedly with the holder's pid, as text, while somebody else has it. Yields False
    where the file system has no locks; then the rename that publishes a folder still keeps readers safe.
    """
    with path.open("a+") as file:
        held = _lock(file.fileno(), lambda: waiting(path.read_text().strip()))
        if held:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield held
        # Closing the file unlocks it. The file stays: removing it would let two processes lock two files.


def _lock(descriptor: int, waiting: Callable[[], None] | None) -> bool:
    """Take the lock; `waiting` is called while somebody else has it, and without it nobody waits."""
    if sys.platform == "win32":
        return False
    import fcntl

    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if waiting is None:
                return False
            waiting()
            time.sleep(_LOCK_POLL_S)
        except OSError:
            return False


def _to_disk(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())
