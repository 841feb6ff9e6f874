"""Where the stream goes: a Unix socket that readers connect to, or a file.

`CBTUI_VLLM_STREAM` says `unix:PATH` or a file's PATH. Without it a socket is made in a folder of the
user's own, `cbtui-vllm-PID.sock` (see `default_socket`). Ranks of a data-parallel server lie side by side:
`s.sock`, `s-dp1.sock`, …
"""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "CBTUI_VLLM_STREAM"


@dataclass(frozen=True)
class Place:
    """A socket's or a file's path."""

    path: Path
    is_socket: bool

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.is_socket else str(self.path)


def runtime_folder() -> Path:
    """The user's own folder for sockets; it may not exist yet."""
    of_session = os.environ.get("XDG_RUNTIME_DIR")
    if of_session:
        return Path(of_session) / "cbtui"
    return Path(tempfile.gettempdir()) / f"cbtui-{os.getuid()}"


def default_socket(pid: int) -> Path:
    """Where a server of that process id listens if nobody said where."""
    return runtime_folder() / f"cbtui-vllm-{pid}.sock"


def place_of(setting: str | None, rank: int = 0, *, pid: int | None = None) -> Place:
    """The place a setting names; of a data-parallel server each rank but the first has its own.

    Args:
        rank: its number.
        pid: of the process that names the default place; None: this one.

    Raises:
        ValueError: the setting names nothing.
    """
    if not setting:
        return _of_rank(Place(default_socket(pid or os.getpid()), is_socket=True), rank)
    is_socket = setting.startswith("unix:")
    path = setting.removeprefix("unix:")
    if not path:
        raise ValueError(f"{VARIABLE} must be unix:PATH or a file's PATH, not {setting}")
    return _of_rank(Place(Path(path).expanduser().absolute(), is_socket), rank)


def _of_rank(place: Place, rank: int) -> Place:
    if not rank:
        return place
    path = place.path
    return Place(path.with_name(f"{path.stem}-dp{rank}{path.suffix}"), place.is_socket)


def private_folder(path: Path) -> None:
    """Make a folder only its owner can enter, or check that the one there is.

    Raises:
        PermissionError: it belongs to somebody else, or others can enter it.
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{path} must belong to this user alone (chmod 700)")
