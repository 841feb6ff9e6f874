"""The worker process as its parent sees it: starting it, ending it in time, saying why it ended.

Owns the process and the channel to it; knows nothing of plans, epochs or events.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from engine.worker.channel import Channel
from engine.worker.log import WorkerLog

#: Holds the caller's own PYTHONPATH for the worker to put back (see `_environment`).
CALLERS_PYTHONPATH = "ENGINE_WORKER_CALLERS_PYTHONPATH"
#: -P: the folder the user happens to stand in may hold some engine/ or random.py that is not ours.
_COMMAND = (sys.executable, "-P", "-X", "faulthandler", "-u", "-m", "engine.worker")
#: How long a process whose pipe has closed may take to become an exit status, seconds.
_REAP_S = 0.5


class WorkerProcess:
    """One running worker.

    Raises:
        OSError: it cannot be started, or its log cannot be written.
    """

    def __init__(self, log: WorkerLog, title: str) -> None:
        self._log = log
        orders_read, orders_write = os.pipe()
        answers_read, answers_write = os.pipe()
        log_fd = -1
        try:
            log_fd = log.open(title)
            self._process = subprocess.Popen(
                (*_COMMAND, str(orders_read), str(answers_write)),
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env=_environment(),
                pass_fds=(orders_read, answers_write),
                start_new_session=True,
            )
        except BaseException:
            os.close(orders_write)
            os.close(answers_read)
            raise
        finally:
            for fd in (orders_read, answers_write, log_fd):
                if fd >= 0:
                    os.close(fd)
        self.channel = Channel(answers_read, orders_write)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, limit_s: float) -> None:
        """End-of-file, then TERM, then KILL, within `limit_s` seconds. Safe from any thread, twice too."""
        deadline = time.monotonic() + limit_s
        self.channel.end_input()
        if self._ended_in(limit_s * 0.3):
            return
        self._signal(signal.SIGTERM)
        if self._ended_in(limit_s * 0.3):
            return
        self._signal(signal.SIGKILL)
        self._ended_in(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """End it now: it hangs, or talks rubbish."""
        self.channel.end_input()
        self._signal(signal.SIGKILL)
        self._ended_in(_REAP_S)

    def cause_of_death(self) -> str:
        """One sentence for the user about a process whose pipe has closed."""
        if self._ended_in(_REAP_S):
            how = _in_words(self._process.returncode)
        else:
            how = "closed its pipe and was ended"
            self.kill()
        return self.sentence(how)

    def sentence(self, how: str) -> str:
        """`how` it went, followed by the end of its log."""
        last = self._log.last_lines()
        return f"the model process {how}" + (f"; its log ends: {last}" if last else "")

    def _ended_in(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """To its whole session, so that an installer it runs ends too.

        Only while it is not reaped: until then nobody else can have its number.
        """
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass


def _environment() -> dict[str, str]:
    """The caller's, plus its import path: what it can import the worker can, as with multiprocessing.

    The worker puts PYTHONPATH back before it runs anything else, an installer for instance.
    """
    env = dict(os.environ)
    env[CALLERS_PYTHONPATH] = env.get("PYTHONPATH", "")
    env["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return env


def _in_words(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    hint = " (by hand, or because memory ran out)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
