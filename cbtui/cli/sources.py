"""Request files and piped prompts, read from where the command line says."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cbtui.cli.console import CommandError, complain
from engine.attach.recordings import begins_as_recording
from engine.live.commands import PromptRequest
from engine.stream.compression import is_compressed
from engine.workload import Asked, BadLine, WorkloadError, read_workload, require_all

#: Bad lines said one by one.
MOST_SAID = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """What a command is told of its request file.

    Attributes:
        source: a file of any format of `engine.workload`, or `-`: standard input.
        max_tokens: output tokens of every request at most; None: what its line says.
        limit: take the first so many requests; None: all.
        arrivals: the file's arrival times so many times as fast; None: all requests at once.
    """

    source: str
    max_tokens: int | None = None
    limit: int | None = None
    arrivals: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What a file asks for: its name for messages, its requests, and the lines that are none."""

    name: str
    requests: tuple[PromptRequest, ...]
    bad: tuple[BadLine, ...]


class Complaints:
    """Says on standard error what could not be run, and counts it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.count = 0

    def add(self, text: str) -> None:
        """Say one thing."""
        self.count += 1
        complain(f"{self._name}, {text}")

    def add_bad(self, bad: Sequence[BadLine]) -> None:
        """Say what is wrong with each line; of many only the first, and how many more there are."""
        shown = bad if len(bad) <= MOST_SAID + 1 else bad[:MOST_SAID]
        for line in shown:
            self.add(str(line))
        if len(shown) < len(bad):
            self.add(f"and {len(bad) - len(shown):,} more bad lines")


def read_bytes(source: str) -> tuple[str, bytes]:
    """The name, for messages, and content of a file; `-` is standard input.

    Raises:
        CommandError: it cannot be read.
    """
    if source == "-":
        return "standard input", sys.stdin.buffer.read()
    try:
        return source, Path(os.path.expanduser(source)).read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {source}: {error.strerror or error}") from None


def workload_of(
    options: FileOptions, default: int | None, request: PromptRequest | None = None, *, plain: bool = True
) -> Workload:
    """The requests of a file, capped as the options say.

    Args:
        default: output tokens of a request that does not say; None: it must say, or `--max-tokens` does.
        request: what requests are asked with where their lines do not say.
        plain: whether a file of no format is a prompt a line.

    Raises:
        CommandError: it cannot be read, or holds nothing.
        WorkloadError: nothing in it can be run.
    """
    name, data = read_bytes(options.source)
    if begins_as_recording(data):
        raise CommandError(f"{name} is a recorded run: `cbtui replay` shows it, `cbtui compare` compares it")
    if is_compressed(data):
        raise CommandError(f"{name} is compressed: unpack it first")
    asked = Asked(request=request or PromptRequest(prompt=""), max_tokens=options.max_tokens or default)
    try:
        lines = read_workload(data, asked, options.limit)
    except WorkloadError as error:
        raise CommandError(f"{name} is {error}") from None
    if not lines:
        raise CommandError(f"{name} holds no requests: a prompt a line, JSON Lines, or a trace with a header")
    requests = [line for line in lines if isinstance(line, PromptRequest)]
    bad = [line for line in lines if isinstance(line, BadLine)]
    most = options.max_tokens
    if most is not None:
        requests = [msgspec.structs.replace(one, max_tokens=min(one.max_tokens, most)) for one in requests]
    return Workload(name, tuple(requests), tuple(bad))


def take_keys_from_terminal() -> None:
    """After requests came from standard input: make the terminal standard input, for keys to be read.

    Raises:
        CommandError: there is no terminal.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        raise CommandError("the screen needs a terminal to read keys from") from None
    os.dup2(terminal, 0)
    os.close(terminal)


def runnable(workload: Workload) -> Workload:
    """The workload, if there is anything in it to run.

    Raises:
        WorkloadError: all its lines are bad; the first is named.
    """
    if not workload.requests:
        require_all(list(workload.bad), workload.name)
    return workload
