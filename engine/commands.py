"""The commands a screen (or any driver) may put into the engine's queue."""

from __future__ import annotations

import msgspec


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a person or a file asks for it: text, not ids. Checked when it is applied.

    `chat`: through the model's chat template. `seed` None: the engine picks one and records it.
    """

    prompt: str
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    chat: bool = False
    label: str = ""


class Submit(msgspec.Struct, frozen=True):
    """Enqueue requests. Several in one command enter together, so step counts don't depend on timing."""

    requests: tuple[PromptRequest, ...]


class Cancel(msgspec.Struct, frozen=True):
    """End a request now; what it has produced stays."""

    request_id: str


class SetMode(msgspec.Struct, frozen=True):
    """Switch to one of `engine.scheduling.modes.MODES` at the next step."""

    mode: str


class Configure(msgspec.Struct, frozen=True):
    """Change limits at the next step; None leaves a limit as it is."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


class SetSpeed(msgspec.Struct, frozen=True):
    """At most so many steps a second; None: as fast as it can."""

    steps_per_s: float | None


class Pause(msgspec.Struct, frozen=True):
    """Stop before the next step."""


class Resume(msgspec.Struct, frozen=True):
    """Run on."""


class Step(msgspec.Struct, frozen=True):
    """Pause, and run so many steps first."""

    count: int = 1


class Restart(msgspec.Struct, frozen=True):
    """Load the model again after a failure; queued requests stay queued."""


class Close(msgspec.Struct, frozen=True):
    """End the engine loop."""


Command = Submit | Cancel | SetMode | Configure | SetSpeed | Pause | Resume | Step | Restart | Close
