"""A vLLM started as a child: its process, its log, and how far its start is.

It is started through `keeper.py`, so it ends with this process however that ends.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.attach import keeper
from engine.attach.plain import harmless
from engine.attach.vllm_command import serve_command, serve_environment
from engine.logs import log_path, open_log
from engine.runner import Loading

_TAIL_BYTES = 1 << 16
#: Lines of its log that are shown.
_SAID = 3
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: How vLLM's lines begin: which process, then level, time and place in its source.
_PROCESS = re.compile(r"^\(\S+ pid=\d+\) ")
_LOG_LINE = re.compile(r"(INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\] +(.*)")
#: The end of a traceback, or what a command line refuses.
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception): |\S+: error: ")
#: What vLLM prints on its way, and what that means for a person.
_STAGES = (
    ("Started server process", "its web server starts"),
    ("Available routes", "its web server starts"),
    ("init engine", "its engine is ready"),
    ("KV cache size", "reserving the KV cache"),
    ("Loading weights took", "weights loaded"),
    ("Loading safetensors", "loading weights"),
    ("Starting to load model", "loading weights"),
    ("Compiling a graph", "compiling"),
    ("Dynamo bytecode", "compiling"),
    ("for vLLM's torch.compile", "compiling"),
    ("Initializing a V1 LLM engine", "starting its engine"),
    ("non-default args", "reading its arguments"),
)


class VllmChild:
    """One start after another of the same command.

    Args:
        vllm: its executable.
        arguments: of `vllm serve`.
    """

    def __init__(self, vllm: str, arguments: Sequence[str]) -> None:
        self._vllm = vllm
        self._arguments = tuple(arguments)
        self._folder = tempfile.TemporaryDirectory(prefix="cbtui-")  # its own, 0700, and a short path
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log_path("vllm")
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_path(self) -> Path:
        """Where it tells its steps."""
        return Path(self._folder.name) / "vllm.sock"

    def start(self) -> None:
        """Start it; what is left of an earlier start is ended first.

        Raises:
            OSError: it cannot be started.
        """
        self.end()
        self.port = _free_port()
        command = serve_command(self._vllm, self._arguments, self.port)
        with open(self.log, "wb", opener=open_log) as log:
            self._process = subprocess.Popen(
                [sys.executable, keeper.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=serve_environment(f"unix:{self.socket_path}"),
                start_new_session=True,
            )

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def exit_code(self) -> int | None:
        """Its exit code once it has ended."""
        return None if self._process is None else self._process.poll()

    def end(self, wait_s: float | None = None) -> None:
        """End it. Waits for that if told to; the keeper sees to it in any case. Twice too."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(wait_s if wait_s is not None else keeper.GRACE_S + 5)
        except subprocess.TimeoutExpired:
            pass

    def close(self) -> None:
        """The end for good."""
        self.end()
        self._folder.cleanup()

    # -- its log ------------------------------------------------------------------------------

    def progress(self) -> Loading:
        """How far it is, by what it printed last."""
        lines = self._lines()
        stage = next((words for line in lines[::-1] for mark, words in _STAGES if mark in line), "")
        said = [harmless(found[2]) for line in lines if (found := _LOG_LINE.match(line))]
        return Loading(f"starting vLLM{': ' + stage if stage else ''}", said=tuple(said[-_SAID:]))

    def last_words(self) -> str:
        """Why it ended, by the errors in its log. The first one is the cause, those after it are about it."""
        lines = [found[2] if (found := _LOG_LINE.match(line)) else line for line in self._lines()]
        errors = [line for line in lines if _ERROR.match(line)]
        return harmless(errors[0] if errors else lines[-1] if lines else "it printed nothing")

    def _lines(self) -> list[str]:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        lines = [_PROCESS.sub("", _ESCAPES.sub("", line)).strip() for line in re.split(r"[\r\n]+", text)]
        return [line for line in lines if line]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
