"""The contract between the engine and whatever runs the model.

Three implementations: `TorchRunner` (in process), `WorkerRunner` (its proxy to a process of its own)
and `FakeRunner` (no model at all). The engine thread calls every method; none but `run` and `check` may
wait.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, Reply


class RunnerError(Exception):
    """Something the model side could not do; the message is one sentence for the user."""


class ModelLoadError(RunnerError):
    """The model cannot be fetched, read or trusted. `stage` says where, `hint` is a command that helps."""

    def __init__(self, message: str, stage: str = "load", hint: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.hint = hint


class ForwardError(RunnerError):
    """One step failed; the runner itself is well and takes the next plan."""


class RunnerDied(RunnerError):
    """The runner is gone (killed, crashed, stalled, answering rubbish): nothing it held remains."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What loading found out about a model, for who wants to know; a runner without one leaves it empty.

    Attributes:
        architecture: its class.
        num_parameters: numbers in its weights, shared ones once.
        num_layers: layers that keep keys and values.
        num_heads, num_kv_heads, head_dim: query heads, key heads and key width of the first layer.
        layer_windows: keys a query sees, its own included, by layer; None: all before it. Empty: all see all.
        length_reason: why `max_model_len` is what it is, in half a sentence.
        route: `fast` (each sequence attends to its own cells) or `reference` (a dense mask).
        route_reason: why not the fast one although it was wanted; else empty.
        linears: how matrix products with the weights are done, in a few words.
        decode_steps: how steps of a shape that recurs are run: replayed, or why not.
        largest_difference: largest difference of a logit between mixed steps and each sequence alone, on
            the random prompts of the probe.
    """

    architecture: str = ""
    num_parameters: int = 0
    num_layers: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    layer_windows: tuple[int | None, ...] = ()
    length_reason: str = ""
    route: str = ""
    route_reason: str = ""
    linears: str = ""
    decode_steps: str = ""
    largest_difference: float = 0.0

    @property
    def sliding_window(self) -> int:
        """Keys a query sees in the layers that have a window; 0: none has."""
        return max((window or 0 for window in self.layer_windows), default=0)


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine and the screen need to know of a loaded model.

    Attributes:
        name: short name for the header.
        source: what was loaded: a Hub id, a folder, a file.
        device, dtype: where and in which type it runs.
        max_model_len: positions the model was made for.
        vocab_size: number of logits.
        eos_token_ids: tokens that end a request; may be several.
        has_chat_template: whether `messages` can be encoded.
        tokenizer_path: a `tokenizer.json` the screen's process reads with the light `tokenizers` package;
            empty for a fake.
        num_threads: torch threads in use.
        kv_bytes_per_token: bytes one cached token takes in the arena.
        exact: whether logits are bitwise the same alone and in any batch (see `engine.torch_runner.exact`).
        fingerprint: of the files it was read from: another one after the process was started again is another
            model. Empty where there are none.
        facts: what loading found out.
    """

    name: str
    source: str
    device: str = "cpu"
    dtype: str = "float32"
    max_model_len: int = 2048
    vocab_size: int = 0
    eos_token_ids: tuple[int, ...] = ()
    has_chat_template: bool = False
    tokenizer_path: str = ""
    num_threads: int = 1
    kv_bytes_per_token: int = 0
    exact: bool = False
    fingerprint: str = ""
    facts: ModelFacts = ModelFacts()


class Message(msgspec.Struct, frozen=True):
    """A turn of a conversation: whose (system, user, assistant, …), and what was said."""

    role: str
    content: str


class PromptInput(msgspec.Struct, frozen=True):
    """Text to turn into token ids: through the chat template as one user message, or as it stands.

    `messages`: through the chat template as these turns instead.
    """

    text: str
    chat: bool = False
    messages: tuple[Message, ...] = ()


class EncodedPrompt(msgspec.Struct, frozen=True):
    """A prompt's ids, or why there are none.

    `num_template_tokens` counts those the chat template added around the user's own. `num_reply_tokens` is
    the length of the reply a request carried along, 0: it carried none (`engine.live.prompting` counts it).
    """

    token_ids: list[int]
    num_template_tokens: int = 0
    error: str = ""
    num_reply_tokens: int = 0


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """Progress of a start. `stage` is what is done now, `then` what is next, in the user's words.

    `said`: what another program printed last that is being started.
    """

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    then: str = ""
    said: tuple[str, ...] = ()


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded; arenas may be opened. `epoch` counts starts of the runner, from 1."""

    info: ModelInfo
    epoch: int


class Encoded(msgspec.Struct, frozen=True, tag="encoded"):
    """The answer to `encode`, prompts in the order they were given."""

    ticket: int
    prompts: list[EncodedPrompt]


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The model cannot be loaded: a panel with stage, cause and one command to copy."""

    message: str
    stage: str
    hint: str = ""


class Died(msgspec.Struct, frozen=True, tag="died"):
    """The runner ended by itself, outside of `run` (inside, `run` raises `RunnerDied`)."""

    message: str
    epoch: int


RunnerEvent = Loading | Ready | Encoded | LoadFailed | Died


class ModelRunner(Protocol):
    """Runs plans on a model. See the module's words for who calls what."""

    def start(self) -> None:
        """Begin loading, or load again after a death. Progress, then Ready or LoadFailed, come as events."""

    def poll(self) -> list[RunnerEvent]:
        """Events since the last call, oldest first. Never waits."""

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        """Ask for token ids; an `Encoded` with the same ticket follows, in order, during a forward too."""

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        """Allocate KV cells under a number; opening it again with another shape replaces it.

        Raises:
            RunnerError: there is no memory for it.
        """

    def run(self, plan: Plan) -> Reply:
        """One forward pass and its samples. Waits for the device.

        Raises:
            ForwardError: this step failed; the runner goes on.
            RunnerDied: the runner is gone.
        """

    def check(self, check: Check) -> Checked:
        """A piece of one sequence alone, by the plainest way there is. Waits for the device.

        Arenas are not touched: steps before and after it give what they would without it.

        Raises:
            ForwardError: this piece failed; the sequence has to begin anew, the runner goes on.
            RunnerDied: the runner is gone.
        """

    def close(self) -> None:
        """End at once, within a second, whatever is under way. May be called from any thread, twice too."""
