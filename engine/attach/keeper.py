"""Runs a server as a child that does not outlive who asked for it.

    python keeper.py COMMAND…

The command runs in a process group of its own. When standard input ends (whoever holds its other end has
closed it, or was killed) the group gets TERM, and KILL if it takes too long; when the command ends by
itself, what it left of its group is killed. Exits with the command's code. Imports nothing of this program:
it starts in a moment, and runs without it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

#: How long a group may take to end after TERM, seconds.
GRACE_S = 5.0
_LOOK_S = 0.1


def keep(command: list[str]) -> int:
    """Run a command until it ends or nobody wants it any more.

    Returns:
        Its exit code, as a shell would give it.
    """
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as exc:
        print(f"{command[0]}: {exc.strerror or exc}", file=sys.stderr)
        return 127
    while child.poll() is None:
        ready, _, _ = select.select([0], [], [], _LOOK_S)
        if ready and not os.read(0, 4096):
            _signal(child.pid, signal.SIGTERM)
            _await_end(child)
            break
    _signal(child.pid, signal.SIGKILL)  # whoever is left: of a command that ended by itself, too
    code = child.wait()
    return 128 - code if code < 0 else code


def _await_end(child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + GRACE_S
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(_LOOK_S / 4)


def _is_alive(child: subprocess.Popen[bytes]) -> bool:
    """Whether anything of the child's group is there."""
    if child.poll() is None:
        return True
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # The end of standard input alone ends it. A handler, since the command would inherit SIG_IGN.
        signal.signal(one, lambda *_: None)
    sys.exit(keep(sys.argv[1:]))
