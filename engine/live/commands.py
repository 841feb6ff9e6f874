"""The commands a screen (or any driver) may put into the engine's queue."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from engine.live.guest import Lend
from engine.live.load import StartLoad, StopLoad
from engine.request import SamplingParams
from engine.runner import Message
from engine.stream.records import Record


class MadeUp(msgspec.Struct, frozen=True):
    """A prompt of which only the length is known; `engine.live.prompting` makes its tokens up.

    Attributes:
        num_tokens: how many.
        key: what this prompt's own tokens are drawn with.
        shared_key: with an entry of `hash_ids`, what the tokens of one of its blocks are drawn with.
        hash_ids: of its blocks from the first on; equal ids under one `shared_key` are equal tokens.
        block_tokens: how many tokens an id stands for.
    """

    num_tokens: int
    key: str
    shared_key: str = ""
    hash_ids: tuple[int, ...] = ()
    block_tokens: int = 512


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a person or a file asks for it: text, not ids. Checked when it is applied.

    The sampling fields are those of `SamplingParams`.

    Attributes:
        chat: through the model's chat template.
        seed: None: the engine picks one and records it.
        priority: lower enters earlier, under the policy `priority`.
        messages: the conversation so far, instead of `prompt` as its only turn; `prompt` is what is shown.
        made_up: its length, instead of a text.
        reply: the output has at most as many tokens as this text.
        verbatim: never through a chat template, whatever a command's default is.
        arrives_s: when it arrives, seconds on its file's own clock.
    """

    prompt: str
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    chat: bool = False
    label: str = ""
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    n_logprobs: int = 0
    priority: int = 0
    messages: tuple[Message, ...] = ()
    made_up: MadeUp | None = None
    reply: str = ""
    verbatim: bool = False
    arrives_s: float = 0.0

    def through_template(self, wants_chat: bool) -> PromptRequest:
        """The request with `chat` as a command wants it, if the request leaves that open."""
        return msgspec.structs.replace(self, chat=wants_chat and not self.verbatim)

    def sampling(self, new_seed: Callable[[], int]) -> SamplingParams:
        """Its sampling parameters.

        Args:
            new_seed: picks a seed where none was asked for.

        Raises:
            ValueError: a value is out of range, said in one sentence.
        """
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=new_seed() if self.seed is None else self.seed,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            top_k=self.top_k,
            top_p=self.top_p,
            stop=self.stop,
            n_logprobs=self.n_logprobs,
        )


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
    """Change settings at the next step; None leaves one as it is.

    Attributes:
        max_num_seqs: fewer than run: nobody is killed, the surplus ends in its own time.
        max_num_batched_tokens: fewer than run: waits until they have ended.
        policy: one of `engine.scheduling.policies.POLICIES`.
        prefix_caching: whether blocks with the same token prefix are shared.
        preempt_surplus: preempt those beyond `max_num_seqs` instead, once.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    policy: str | None = None
    prefix_caching: bool | None = None
    preempt_surplus: bool = False


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


#: What `RunUntil` waits for, and how it is said.
UNTIL = {
    "finished": "the next finish",
    "admitted": "the next admission",
    "preempted": "the next preemption",
    "step": "a step",
    "drained": "nothing is left to do",
}


class RunUntil(msgspec.Struct, frozen=True):
    """Run on, and pause as soon as `what` (one of `UNTIL`) has happened; `step` is the number of the step."""

    what: str
    step: int = 0

    @property
    def words(self) -> str:
        """What it waits for."""
        return f"step {self.step:,}" if self.what == "step" else UNTIL[self.what]

    def is_reached(self, record: Record, is_drained: bool) -> bool:
        """Whether a record, or an engine without work after it, is what was waited for."""
        events = record.events
        match self.what:
            case "finished":
                return bool(events.finished)
            case "admitted":
                return bool(events.admitted)
            case "preempted":
                return bool(events.preempted)
            case "step":
                return record.step >= self.step
        return is_drained


class Restart(msgspec.Struct, frozen=True):
    """Load the model again after a failure; queued requests stay queued."""


class Close(msgspec.Struct, frozen=True):
    """End the engine loop."""


Command = (
    Submit
    | Cancel
    | SetMode
    | Configure
    | SetSpeed
    | Pause
    | Resume
    | Step
    | RunUntil
    | Restart
    | Close
    | Lend
    | StartLoad
    | StopLoad
)
