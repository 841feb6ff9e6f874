"""Processes that are given orders a line and answer a line: followers of a server, and vLLM's side."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any


class Child:
    """A process with a pipe to it and a pipe from it.

    Args:
        process: started with both.
        errors: where its standard error goes.
    """

    def __init__(self, process: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self._process, self._errors = process, errors

    def told(self) -> str:
        """The next line it says.

        Raises:
            RuntimeError: it has ended instead; with the end of its errors.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")[-3000:]
            raise RuntimeError(f"{self._process.args} failed: {said}")
        return line.strip()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Give an order; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self.told()))

    def end_orders(self) -> None:
        """Close the pipe to it: it ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()


@contextmanager
def child(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Child]:
    """A process for as long as it is needed; `environment` None: as this process has it."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        ) as process,
    ):
        one = Child(process, errors)
        try:
            yield one
        finally:
            one.end_orders()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True)
class Seen:
    """What a follower has seen so far: steps, and the processor seconds that took it."""

    steps: int
    cpu_s: float

    def since(self, before: Seen) -> Seen:
        return Seen(self.steps - before.steps, self.cpu_s - before.cpu_s)


@contextmanager
def followed(address: str) -> Iterator[Callable[[], Seen]]:
    """Somebody follows a server meanwhile, in a process of its own, as `cbtui attach` does; what is given
    says what it has seen."""
    with child([sys.executable, "-m", "tests.benchmarks.follow_child", address]) as one:
        one.told()
        yield lambda: Seen(**one.ask())
