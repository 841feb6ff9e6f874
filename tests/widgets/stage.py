"""A small stage for the panels' tests: a real engine on the fake runner, folded into frames.

No thread, no wall clock: every step takes `STEP_S` on a clock of its own. Prompts are tokenized by words,
and the fake's hashed tokens read as words, or as bytes when a test sets `token_text`.
"""

from __future__ import annotations

from cbtui.drawing.slot_history import SlotHistory
from cbtui.following.frame import Frame
from cbtui.telling.naming import Badges
from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.live.state import EngineState, Status
from engine.request import SamplingParams
from engine.runner import ModelInfo
from engine.step.plan import Plan, Reply
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.record_parts import blocked_now, slots_now, waiting_now
from engine.stream.records import Record, StepRecord

STEP_S = 0.055

TUTORIAL = (
    ("The capital of France is", 6),
    ("Today's weather is so", 50),
    ("In machine learning, a transformer is", 300),
    ("Once upon a time in a land far away,", 30),
    ("Quantum computing differs from classical computing because", 180),
    ("The history of the Roman Empire began", 45),
)
_OUTPUT = (
    "the river , cold and quiet as a long road through old hills where people sing of"
    " small houses near water that runs down to the sea"
).split()


class _TickingRunner(FakeRunner):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def run(self, plan: Plan) -> Reply:
        self.now += STEP_S
        return super().run(plan)


class Stage:
    """An engine and everything a screen folds from it."""

    def __init__(self, mode: str = "continuous", slots: int = 3, **config: int) -> None:
        self.runner = _TickingRunner()
        self._words: dict[str, int] = {}
        self.token_text: dict[int, bytes] = {}
        self.engine = Engine(
            EngineConfig(mode=mode, max_num_seqs=slots, **config),
            self.runner,
            ModelInfo(name="SmolLM2-135M-Instruct", source="fake", vocab_size=1000, max_model_len=1 << 20),
            clock=EngineClock(lambda: self.runner.now),
            token_bytes=self._token_bytes,
        )
        self.records: list[Record] = []
        self.ledger = Ledger()
        self.badges = Badges()
        self.metrics = Metrics(self.ledger)

    def _token_bytes(self, token_id: int) -> bytes:
        return self.token_text.get(token_id) or f" {_OUTPUT[token_id % len(_OUTPUT)]}".encode()

    def _encode(self, prompt: str) -> list[int]:
        ids = []
        for word in prompt.replace(",", " ,").split(" "):
            token_id = self._words.setdefault(word, len(self._words))
            text = word if not ids else ("" if word == "," else " ") + word
            self.token_text[token_id] = text.encode("utf-8", "replace")
            ids.append(token_id)
        return ids

    def submit(
        self, *requests: tuple[str, int], template: int = 0, tokens: int | None = None, typed: str = ""
    ) -> list[str]:
        """Enqueue (prompt, max tokens) pairs; `typed`: the text a template was put around."""
        ids = []
        for prompt, max_tokens in requests:
            token_ids = self._encode(prompt) if tokens is None else list(range(tokens))
            ids.append(
                self.engine.add_request(
                    token_ids,
                    SamplingParams(max_tokens=max_tokens, ignore_eos=True),
                    prompt_text=typed or prompt,
                    num_template_tokens=template,
                )
            )
        return ids

    def tutorial(self) -> Stage:
        """The tutorial's six requests, submitted together."""
        self.submit(*TUTORIAL)
        return self

    def step(self, count: int = 1) -> Stage:
        """Run so many steps, or fewer if the work ends."""
        for _ in range(count):
            record = self.engine.step()
            if record is None:
                break
            self._fold(record)
        return self

    def drain(self) -> Stage:
        """Run until the engine is empty."""
        return self.step(1_000_000)

    def quiet(self) -> Stage:
        """Take in what changed between steps."""
        record = self.engine.take_quiet_record()
        if record is not None:
            self._fold(record)
        return self

    def _fold(self, record: Record) -> None:
        if not self.ledger.stories or all(s.finish for s in self.ledger.stories.values()):
            self.records = []
        self.records.append(record)
        self.ledger.apply(record)
        self.badges.apply(record)
        self.metrics.apply(record)

    def state(self, status: Status | None = None, **changes: object) -> EngineState:
        """The engine's state as its loop would publish it."""
        waiting = waiting_now(
            self.engine.scheduler, blocked_now(self.engine.scheduler, paused=status == "paused")
        )
        fields: dict[str, object] = {
            "status": status or ("running" if self.engine.has_work else "idle"),
            "paused": status == "paused",
            "model": self.engine.info,
            "mode": self.engine.mode,
            "config": self.engine.config,
            "speed": 8.0,
            "step": self.engine.step_number,
            "slots": slots_now(self.engine.scheduler),
            "waiting": waiting,
            "waiting_count": len(self.engine.scheduler.waiting),
            **changes,
        }
        return EngineState(**fields)  # type: ignore[arg-type]

    @property
    def last(self) -> StepRecord | None:
        """The newest step."""
        return next((r for r in reversed(self.records) if isinstance(r, StepRecord)), None)

    def frame(
        self,
        status: Status | None = None,
        *,
        step: int | None = None,
        selected: str | None = None,
        **changes: object,
    ) -> Frame:
        """The picture now, or of an earlier step."""
        record, records = self.last, self.records
        if step is not None:
            records = [r for r in records if r.step <= step]
            record = next(r for r in records if isinstance(r, StepRecord) and r.step == step)
        return Frame(
            state=self.state(status, **changes),
            record=record,
            is_live=step is None,
            records=records,
            ledger=self.ledger,
            badges=self.badges,
            metrics=self.metrics.snapshot(),
            runs=self.metrics.runs,
            run=self.metrics.current_run,
            selected=selected,
            lanes=SlotHistory(self.records),
        )
