"""What the engine thread publishes for a screen: its latest state, and nothing that must be computed.

The stream of records says what happened; this says how things stand now, between records too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config import EngineConfig
from engine.live.load import LoadNow
from engine.runner import Loading, ModelInfo
from engine.stream.records import Provenance, SlotRecord, WaitingRecord

#: `draining` is not a status: it is a number beside `mode`.
Status = Literal["loading", "running", "paused", "idle", "failed", "closed"]


class Failure(msgspec.Struct, frozen=True):
    """Why the engine cannot go on: the stage, the cause in a sentence, a command that may help.

    `retry_s`: seconds until it is tried again by itself; None: it is not. `title`: what is wrong with a
    server, in some words; empty: with the model, in the stage.
    """

    stage: str
    message: str
    hint: str = ""
    retry_s: float | None = None
    title: str = ""


class Rejection(msgspec.Struct, frozen=True):
    """A command that was refused, in one sentence; `number` counts them so a screen says each once."""

    number: int
    message: str

    @classmethod
    def after(cls, before: Rejection | None, message: str) -> Rejection:
        """The next one."""
        return cls(before.number + 1 if before else 1, message)


class Arriving(msgspec.Struct, frozen=True):
    """A prompt on its way in: its token ids are not there yet (`reason`: loading or encoding)."""

    request_id: str
    index: int
    prompt_text: str
    max_tokens: int
    reason: str


class EngineState(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The newest state; `version` rises with every publication.

    Attributes:
        status: loading, running, paused, idle (nothing to do), failed, closed.
        paused: the pause key's state; a paused engine without work is `paused`, not `idle`.
        until: what it runs on to before it pauses by itself, in words; empty: nothing.
        loading: progress while loading.
        failure: cause while failed.
        stuck: whose answer the engine's thread waits for in vain, a sentence. Set by the reader: that thread
            publishes nothing then.
        model: None until the model is ready.
        mode: the mode of the next step if nothing changes.
        pending_mode: asked for, takes effect at the next step.
        draining: running requests that must end before static mode starts a wave of its own.
        config: limits in force; `pending_config` takes effect at the next step.
        speed: steps a second at most; None: as fast as it can.
        step: number of the last finished step.
        time_s: engine clock.
        slots: occupied slots as they are now (after cancels, before the next step's admissions).
        waiting_count, waiting: as in `StepRecord`, as they are now.
        arriving_count, arriving: prompts without token ids yet, behind the waiting ones; the first
            `WAITING_SHOWN` of them.
        num_held_here: of those, prompts that are not sent to the server yet.
        num_records: records appended to the history so far; a reader that has seen fewer has news.
        rejection: the last refused command.
        load: the load generator, while it is on.
        verifying: finished requests that wait for their check alone; None: nobody checks.
        is_recording: a trace is played; there is no engine that could be asked anything.
        newest_step: of a server or a recording, the newest step that was read, shown or not.
        is_all_read: nothing comes after that one.
        provenance: whose records these are, and what in them is inferred or absent; None: this engine's own.
        refused: what cannot be asked of whoever makes the records, each with the reason in a sentence:
            `mode`, `limits`, `pace`, `load`, `model` (to be lent), `prompts`, `cancel`.
    """

    version: int = 0
    status: Status = "loading"
    paused: bool = False
    until: str = ""
    loading: Loading | None = None
    failure: Failure | None = None
    stuck: str = ""
    model: ModelInfo | None = None
    mode: str = "continuous"
    pending_mode: str | None = None
    draining: int = 0
    config: EngineConfig = EngineConfig()
    pending_config: EngineConfig | None = None
    speed: float | None = None
    step: int = 0
    time_s: float = 0.0
    slots: tuple[SlotRecord, ...] = ()
    waiting_count: int = 0
    waiting: tuple[WaitingRecord, ...] = ()
    arriving_count: int = 0
    num_held_here: int = 0
    arriving: tuple[Arriving, ...] = ()
    num_records: int = 0
    rejection: Rejection | None = None
    load: LoadNow | None = None
    verifying: int | None = None
    is_recording: bool = False
    newest_step: int = 0
    is_all_read: bool = False
    provenance: Provenance | None = None
    refused: tuple[tuple[str, str], ...] = ()

    def why_refused(self, what: str) -> str:
        """Why something cannot be asked for; empty: it can."""
        return dict(self.refused).get(what, "")

    @property
    def is_out_of_sight(self) -> bool:
        """Whether a server that was followed is gone: what is known of it is as it was last seen."""
        return self.is_attached and self.model is not None and self.status == "failed"

    @property
    def num_held_back(self) -> int:
        """Steps of a server that it has made and that are not shown."""
        return max(0, self.newest_step - self.step) if self.is_attached else 0

    @property
    def is_attached(self) -> bool:
        """Whether a server is observed that schedules by itself."""
        return self.provenance is not None and not self.is_recording
