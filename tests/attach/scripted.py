"""A source that plays a script, and a loop turned by hand on a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine.attach.loop import AttachLoop
from engine.attach.source import Opened, Queue, Refused
from engine.config import EngineConfig
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import PromptRequest
from engine.live.state import EngineState
from engine.runner import ModelInfo
from engine.stream.records import Provenance, Record

OPENED = Opened(
    info=ModelInfo(name="m", source="m", device="", dtype=""),
    config=EngineConfig(max_num_seqs=4),
    provenance=Provenance(engine="a server", address="http://127.0.0.1:1", absent=(("budget", "not told"),)),
)


class ScriptedSource:
    """Each entry of `script` is what a read gives, or raises; `openings` are what the first ones raise."""

    def __init__(self, script: Sequence[Sequence[Record] | Exception] = ()) -> None:
        self.script = deque(script)
        self.openings: deque[Exception] = deque()
        self.num_opened = 0
        self.sent: list[PromptRequest] = []
        self.is_closed = False
        self.queued: Queue | None = None

    def open(self) -> Opened:
        if self.openings:
            raise self.openings.popleft()
        self.num_opened += 1
        return OPENED

    def read(self, timeout_s: float) -> Sequence[Record]:
        step = self.script.popleft() if self.script else ()
        if isinstance(step, Exception):
            raise step
        return step

    def queue(self) -> Queue | None:
        return self.queued

    def submit(self, requests: Sequence[PromptRequest]) -> None:
        self.sent += requests

    def cancel(self, request_id: str) -> None:
        raise Refused(f"{request_id} is not from here")

    def close(self) -> None:
        self.is_closed = True


class Watcher:
    """A loop and what a screen shares with it."""

    def __init__(self, source: ScriptedSource, *, limit: int = 1000, paused: bool = False) -> None:
        self.commands, self.mailbox, self.history = CommandQueue(), Mailbox(), History(limit)
        self.now = 0.0
        self.loop = AttachLoop(
            source,
            commands=self.commands,
            mailbox=self.mailbox,
            history=self.history,
            paused=paused,
            now_s=lambda: self.now,
        )

    @property
    def state(self) -> EngineState:
        return self.mailbox.latest()

    @property
    def steps(self) -> list[int]:
        return [record.step for record in self.history.since(0)[1]]

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.turn()
