"""Log files of the processes this program starts: in the user's cache folder, for this user alone.

Each app has its own, so that two do not write into each other's; the newest few of a kind are kept.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from engine.model_store import cache_root
from engine.model_store.cache import private_folder

_KEPT = 8


def log_path(kind: str) -> Path:
    """This app's log of a kind of process; in the folder for temporary files where the cache folder cannot
    be written."""
    name = f"{kind}-{os.getpid()}.log"
    folder = cache_root() / "logs"
    try:
        private_folder(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
        _drop_old(folder, kind)
    except OSError:
        # A folder of its own: in one that others write to, a name that can be guessed may be a trap.
        return Path(tempfile.mkdtemp(prefix="cbtui-")) / name
    return folder / name


def open_log(path: str | Path, flags: int) -> int:
    """A descriptor for writing, as `open` wants it of an `opener`: for this user alone, and through no link.

    Raises:
        OSError: the file cannot be written.
    """
    private_folder(Path(path).parent)
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _drop_old(folder: Path, kind: str) -> None:
    logs = sorted(folder.glob(f"{kind}-*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[: -(_KEPT - 1)]:
        path.unlink(missing_ok=True)
