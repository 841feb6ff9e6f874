"""Brings a generated load into an engine: what is due, cut from a text whose token ids are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.engine import Engine
from engine.live.load import LOAD_TICKET, Drawn, LoadError, LoadNow, LoadSpec, arrivals, passage
from engine.request import SamplingParams
from engine.runner import ModelRunner, PromptInput

TokenBytesOf = Callable[[int], bytes]


class LoadFeed:
    """Says which requests are due.

    Args:
        spec: what arrives.
        now_s: monotonic seconds.
    """

    def __init__(self, spec: LoadSpec, now_s: float) -> None:
        self.spec = spec
        self.num_arrived = 0
        self._arrivals = arrivals(spec)
        self._next = next(self._arrivals)
        self._elapsed_s = 0.0
        self._looked_s = now_s
        self._ids: list[int] = []
        self._starts: list[int] = []

    @classmethod
    def begin(cls, spec: LoadSpec, engine: Engine | None, runner: ModelRunner, now_s: float) -> LoadFeed:
        """A load for an engine; its text is asked for under `LOAD_TICKET`.

        Args:
            engine: None: its model is not there.

        Raises:
            LoadError: there is no model, or its requests would not fit.
        """
        if engine is None:
            raise LoadError("load needs the model: start it when that is there")
        longest = engine.config.max_model_len
        if spec.prompt_tokens[1] >= longest:
            raise LoadError(f"prompts must be shorter than {longest} tokens")
        runner.encode(LOAD_TICKET, [PromptInput(passage())])
        return cls(spec, now_s)

    @property
    def now(self) -> LoadNow:
        return LoadNow(self.spec, self.num_arrived)

    @property
    def has_text(self) -> bool:
        """Whether the passage's tokens are known; nothing is due before."""
        return bool(self._ids)

    def take_text(self, ids: Sequence[int], token_bytes: TokenBytesOf | None) -> None:
        """The passage's token ids. Prompts begin with a word where the tokens' bytes are known."""
        self._ids = list(ids)
        words = [n for n, i in enumerate(ids) if token_bytes is not None and token_bytes(i)[:1] == b" "]
        self._starts = words or list(range(len(self._ids)))

    def enter(
        self, engine: Engine, now_s: float, token_bytes: TokenBytesOf | None, *, is_running: bool
    ) -> None:
        """Enqueue what arrived since the last call."""
        for drawn in self.due(now_s, is_running=is_running):
            ids = self.prompt(drawn)
            text = b"".join(map(token_bytes, ids)).decode("utf-8", "replace") if token_bytes else ""
            params = SamplingParams(max_tokens=drawn.output_tokens, seed=0, ignore_eos=True)
            engine.add_request(ids, params, prompt_text=text.strip(), label="load")

    def due(self, now_s: float, *, is_running: bool) -> list[Drawn]:
        """What arrived since the last call; time does not pass while nothing runs."""
        if is_running and self.has_text:
            self._elapsed_s += now_s - self._looked_s
        self._looked_s = now_s
        found: list[Drawn] = []
        while self._next.time_s <= self._elapsed_s:
            found.append(self._next)
            self._next = next(self._arrivals)
        self.num_arrived += len(found)
        return found

    def prompt(self, drawn: Drawn) -> list[int]:
        """The token ids of an arrival's prompt: a piece of the passage, which begins again at its end."""
        start = self._starts[int(drawn.place * len(self._starts))]
        return [self._ids[(start + n) % len(self._ids)] for n in range(drawn.prompt_tokens)]
