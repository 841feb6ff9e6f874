"""A loop in a thread of its own that follows a server, and a llama.cpp server to be followed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.attach.address import Key, read_address
from engine.attach.loop import AttachLoop
from engine.attach.opening import source_of
from engine.attach.source import Source
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close
from engine.live.state import EngineState
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord

SERVER = Path(__file__).with_name("llama_server.py")


class Following:
    """What a screen shares with the loop, and what may be asked of it in a test."""

    def __init__(self, source: Source) -> None:
        self.commands, self.mailbox, self.history = CommandQueue(), Mailbox(), History(100_000)
        self.loop = AttachLoop(source, commands=self.commands, mailbox=self.mailbox, history=self.history)
        self.thread = threading.Thread(target=self.loop.run)

    @property
    def state(self) -> EngineState:
        return self.mailbox.latest()

    @property
    def records(self) -> list[Record]:
        return self.history.since(0)[1]

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def ledger(self) -> Ledger:
        ledger = Ledger()
        for record in self.records:
            ledger.apply(record)
        return ledger

    @property
    def num_finished(self) -> int:
        return sum(len(record.events.finished) for record in self.records)

    def wait(self, what: Callable[[], object], most_s: float = 30.0) -> None:
        """Until something is so; a deadline only so that a fault ends the test."""
        end = time.monotonic() + most_s
        while not what():
            assert time.monotonic() < end, (self.state.failure, self.state.rejection, self.records[-3:])
            time.sleep(0.01)


@contextmanager
def following(url: str, key: str = "") -> Iterator[Following]:
    """Follow a server, once it has answered or been found lost."""
    one = Following(source_of(read_address(url), Key(key)))
    one.thread.start()
    try:
        one.wait(lambda: one.state.model or one.state.failure)
        yield one
    finally:
        one.commands.put(Close())
        one.thread.join(5)
        assert not one.thread.is_alive()


class LlamaServer:
    """A process of llama.cpp's own server."""

    def __init__(self, model: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), str(model), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@contextmanager
def llama_server(model: Path, *options: str) -> Iterator[LlamaServer]:
    """A server on a port of its own choice."""
    server = LlamaServer(model, *options)
    try:
        yield server
    finally:
        server.close()
