"""Brings a generated load into an engine: what is due, cut from a text whose token ids are known.

`load.py` says what arrives when; here it becomes requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.engine import Engine
from engine.live.load import (
    LOAD_TICKET,
    MOST_WAITING,
    Drawn,
    LoadError,
    LoadNow,
    LoadSpec,
    arrivals,
    passage,
)
from engine.request import SamplingParams
from engine.runner import Encoded, PromptInput

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

    def enter(self, engine: Engine, now_s: float, *, is_running: bool) -> None:
        """Enqueue what arrived since the last call."""
        token_bytes = engine.token_bytes
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


class LoadGenerator:
    """The load of an engine's thread, while one is on.

    Args:
        now_s: monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._feed: LoadFeed | None = None

    @property
    def now(self) -> LoadNow | None:
        """What is on; None: nothing."""
        return self._feed.now if self._feed else None

    def start(self, spec: LoadSpec, engine: Engine | None) -> None:
        """Let requests arrive from now on; their text is asked for under `LOAD_TICKET`.

        Args:
            engine: where they enter; None: its model is not there.

        Raises:
            LoadError: there is no model, or its requests would not fit.
        """
        if engine is None:
            raise LoadError("load needs the model: start it when that is there")
        longest = engine.config.max_model_len
        if spec.prompt_tokens[1] >= longest:
            raise LoadError(f"prompts must be shorter than {longest} tokens")
        engine.runner.encode(LOAD_TICKET, [PromptInput(passage())])
        self._feed = LoadFeed(spec, self._now_s())

    def stop(self) -> bool:
        """No more arrivals; whether there were any to come."""
        was_on, self._feed = self._feed is not None, None
        return was_on

    def take(self, event: Encoded, engine: Engine | None) -> None:
        """The answer to `LOAD_TICKET`."""
        if self._feed is not None and engine is not None:
            self._feed.take_text(event.prompts[0].token_ids, engine.token_bytes)

    def enter(self, engine: Engine | None, *, is_running: bool) -> str:
        """Enqueue what arrived meanwhile; why it has stopped, in a sentence, or nothing.

        Args:
            is_running: time passes for the load only while steps are done.
        """
        if self._feed is None or engine is None:
            return ""
        self._feed.enter(engine, self._now_s(), is_running=is_running)
        if len(engine.scheduler.waiting) < MOST_WAITING:
            return ""
        self._feed = None
        return f"the load has stopped: {MOST_WAITING:,} requests wait"

    def model_died(self) -> None:
        """A question that was still open died with the model's process."""
        if self._feed is not None and not self._feed.has_text:
            self._feed = None
