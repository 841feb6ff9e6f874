"""One request: what was asked, what it has produced, and the states it may pass through.

Owns `num_computed_tokens` and the status; knows nothing of other requests, slots' rules or tensors.
There is no prefill phase and no decode phase: `num_computed_tokens` chases `num_tokens` (the idea is
vLLM v1's), which covers prefill, chunked prefill, decode and resuming after preemption with one rule.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class RequestStatus(Enum):
    """Where a request stands; `finish_reason` is derived from it."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "finished_stopped"
    FINISHED_LENGTH_CAPPED = "finished_length_capped"
    FINISHED_ABORTED = "finished_aborted"
    FINISHED_ERROR = "finished_error"
    FINISHED_IGNORED = "finished_ignored"

    @property
    def is_finished(self) -> bool:
        return self in FINISH_REASONS


FINISH_REASONS: dict[RequestStatus, str] = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_ERROR: "error",
    RequestStatus.FINISHED_IGNORED: "ignored",
}

#: The most likeliest tokens a request may ask to be recorded beside each sampled one (vLLM's limit).
MOST_LOGPROBS = 20
#: The largest number of tokens that can be asked for, and the largest seed: what the wire carries.
MOST_NUMBER, MOST_SEED = (1 << 31) - 1, (1 << 63) - 1

_ENDS = {RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR}
TRANSITIONS: dict[RequestStatus, set[RequestStatus]] = {
    RequestStatus.WAITING: {RequestStatus.RUNNING, RequestStatus.FINISHED_IGNORED} | _ENDS,
    RequestStatus.RUNNING: {
        RequestStatus.PREEMPTED,
        RequestStatus.FINISHED_STOPPED,
        RequestStatus.FINISHED_LENGTH_CAPPED,
    }
    | _ENDS,
    RequestStatus.PREEMPTED: {RequestStatus.RUNNING} | _ENDS,
}


class IllegalTransition(RuntimeError):
    """A status change that `TRANSITIONS` does not list: a fault in the engine, never in the input."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How a request's tokens are chosen and when it ends.

    Attributes:
        max_tokens: output tokens at most.
        temperature: 0 is greedy (argmax); otherwise logits are divided by it before drawing.
        seed: the request's own seed. Output token i is drawn from a generator seeded by (seed, i), so
            a request's text does not depend on its neighbours, on preemption or on a restart.
        stop_token_ids: tokens that end the request, beside the model's end-of-sequence tokens.
        ignore_eos: go on past the model's end-of-sequence tokens (`stop_token_ids` still end it).
        top_k: draw among the so many likeliest tokens only; 0: among all. Greedy ignores it.
        top_p: draw among the fewest likeliest tokens whose probabilities (after the temperature, and among
            the `top_k`) sum to at least this, in (0, 1]; 1: among all. Greedy ignores it.
        stop: strings that end the request once its output holds one, across token boundaries. The text
            is cut before it; the token ids stay.
        n_logprobs: likeliest tokens to record beside each sampled one, at most `MOST_LOGPROBS`.

    Raises:
        ValueError: a value is out of range, said in one sentence.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    n_logprobs: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if self.max_tokens > MOST_NUMBER:
            raise ValueError(f"max_tokens must be at most {MOST_NUMBER:,}, not {self.max_tokens:,}")
        if not -MOST_SEED <= self.seed <= MOST_SEED:
            raise ValueError(f"seed must be within 64 bits (at most {MOST_SEED:,}), not {self.seed:,}")
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 (greedy) or a positive number, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or at least 1, not {self.top_k}")
        if self.top_k > MOST_NUMBER:
            raise ValueError(f"top_k must be at most {MOST_NUMBER:,}, not {self.top_k:,}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1 (off), not {self.top_p}")
        if not 0 <= self.n_logprobs <= MOST_LOGPROBS:
            raise ValueError(f"n_logprobs must be from 0 to {MOST_LOGPROBS}, not {self.n_logprobs}")
        for string in self.stop:
            if not string:
                raise ValueError("a stop string must not be empty")
            if any("\ud800" <= character <= "\udfff" for character in string):
                raise ValueError("a stop string must be valid Unicode, not half of a surrogate pair")


class Request:
    """A request inside the engine. Mutable; owned by the engine thread alone.

    Args:
        request_id: unique in its engine.
        index: arrival number, 0 for the first request of the engine; names its letter on screen.
        prompt_token_ids: at least one token.
        params: sampling parameters.
        arrival_s: arrival on the engine clock, seconds.
        priority: lower runs earlier, for policies that order by it.
        arrival_step: the last finished step when it arrived.
    """

    __slots__ = (
        "arrival_s",
        "arrival_step",
        "block_hashes",
        "high_water",
        "index",
        "num_computed_tokens",
        "num_output_bytes",
        "num_preemptions",
        "num_text_bytes",
        "output_token_ids",
        "params",
        "priority",
        "prompt_token_ids",
        "request_id",
        "slot",
        "status",
        "stop_string",
        "stop_window",
    )

    def __init__(
        self,
        request_id: str,
        index: int,
        prompt_token_ids: list[int],
        params: SamplingParams,
        arrival_s: float = 0.0,
        priority: int = 0,
        arrival_step: int = 0,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.arrival_s = arrival_s
        self.priority = priority
        self.arrival_step = arrival_step
        self.output_token_ids: list[int] = []
        self.num_computed_tokens = 0
        #: The most tokens ever computed: feeding a position below it again is recomputation.
        self.high_water = 0
        self.num_preemptions = 0
        #: Of its full blocks' tokens, for prefix caching; grows with need.
        self.block_hashes: list[bytes] = []
        #: The end of the output's bytes in which a stop string may have begun, and how many there are in all.
        self.stop_window = b""
        self.num_output_bytes = 0
        #: The stop string that ended it, and the bytes of output before it.
        self.stop_string = ""
        self.num_text_bytes: int | None = None
        self.slot: int | None = None
        self.status = RequestStatus.WAITING

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id}, {self.status.value}, {self.num_computed_tokens}/{self.num_tokens})"
        )

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and outputs so far; the last output is not computed before it is fed."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Tokens still to be fed before the next one can be sampled."""
        return self.num_tokens - self.num_computed_tokens

    def tokens(self, start: int, stop: int) -> list[int]:
        """Token ids at positions [start, stop) of prompt + outputs."""
        prompt = self.prompt_token_ids
        if stop <= len(prompt):
            return prompt[start:stop]
        head = prompt[start:]
        offset = len(prompt)
        return head + self.output_token_ids[max(0, start - offset) : stop - offset]

    def move_to(self, status: RequestStatus) -> None:
        """Change status.

        Raises:
            IllegalTransition: `TRANSITIONS` does not list the change.
        """
        if status not in TRANSITIONS.get(self.status, set()):
            raise IllegalTransition(f"{self.request_id}: {self.status.name} -> {status.name}")
        self.status = status
