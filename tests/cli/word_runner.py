"""A fake runner with a real `tokenizer.json`, under which the tutorial's prompts have their real lengths."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

import msgspec
from tokenizers import Tokenizer, decoders, models

from engine.fake import VOCAB_SIZE, FakeRunner
from engine.runner import Encoded, EncodedPrompt, ForwardError, LoadFailed, PromptInput
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, PlanRow, Reply, SampledToken
from engine.workload import tutorial_workload

_PIECE = re.compile(r"'s| ?\w+| ?[^\w\s]|\s")


@cache
def vocabulary() -> dict[str, int]:
    """The tutorial's words below 256, ` t256` and so on above, in GPT-2's spelling (Ġ is a space)."""
    words = [w for request in tutorial_workload() for w in _PIECE.findall(request.prompt)]
    known = {word.replace(" ", "Ġ"): number for number, word in enumerate(dict.fromkeys(words))}
    return known | {f"Ġt{number}": number for number in range(256, VOCAB_SIZE)}


@cache
def tokenizer_path() -> str:
    tokenizer = Tokenizer(models.WordLevel(vocabulary(), unk_token="Ġt999"))
    tokenizer.decoder = decoders.ByteLevel()
    path = Path(tempfile.mkdtemp(prefix="cbtui-test-")) / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


class WordRunner(FakeRunner):
    """A word is a token; unknown ones share an id."""

    def __init__(
        self, *, dtype: str = "float32", has_chat_template: bool = True, eos_token_id: int | None = None
    ) -> None:
        super().__init__(eos_token_id=eos_token_id)
        self.info = msgspec.structs.replace(
            self.info, tokenizer_path=tokenizer_path(), dtype=dtype, has_chat_template=has_chat_template
        )
        self.is_closed = False

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        encoded = []
        for prompt in prompts:
            words = [word.replace(" ", "Ġ") for word in _PIECE.findall(prompt.text)]
            ids = [vocabulary().get(word, 999) for word in words]
            template = 2 if prompt.chat else 0
            if "unspeakable" in prompt.text:
                encoded.append(EncodedPrompt([], error="it is unspeakable"))
            else:
                encoded.append(EncodedPrompt([998] * template + ids, num_template_tokens=template))
        self._events.append(Encoded(ticket, encoded))

    def close(self) -> None:
        self.is_closed = True


class PartingRunner(WordRunner):
    """Chooses another token in padded layouts, for output 3 of a prompt of ten tokens: the fourth's.

    Args:
        gap: between the two candidates' log probabilities; None: the other one is not known.
    """

    def __init__(self, gap: float | None, dtype: str = "float32") -> None:
        super().__init__(dtype=dtype)
        self._gap = gap

    def run(self, plan: Plan) -> Reply:
        reply = super().run(plan)
        sampled = list(reply.sampled)
        for place, row in enumerate(plan.rows):
            if row.request_id == "r3" and row.output_index == 3 and row.sampling is not None:
                sampled[place] = self._choice(parts=plan.layout == "padded")
        return msgspec.structs.replace(reply, sampled=sampled)

    def check(self, check: Check) -> Checked:
        """Alone it chooses as in ragged layouts."""
        checked = super().check(check)
        gap = 1.0 if self._gap is None else self._gap
        for place, served in enumerate(check.served):
            if served in (300, 301) and checked.choices[place] != served:
                checked.choices[place] = 301
                checked.gaps[place] = 0.0 if served == 301 else gap
                checked.logprobs[place] = -1.0 - checked.gaps[place]
        return checked

    def _choice(self, *, parts: bool) -> SampledToken:
        mine, other = (300, 301) if parts else (301, 300)
        top = [(mine, -1.0)] + ([] if self._gap is None else [(other, -1.0 - self._gap)])
        return SampledToken(mine, -1.0, top)


class Forgetful(WordRunner):
    """Reads a wrong cell for the second request in step 4, in every mode alike."""

    def __init__(self) -> None:
        super().__init__()
        self._read = self._reader
        self._reader = self._wrong

    def run(self, plan: Plan) -> Reply:
        self._is_wrong = plan.step == 4
        return super().run(plan)

    def _wrong(self, row: PlanRow, arena: ArenaShape) -> list[int]:
        cells = self._read(row, arena)
        return [cells[0] + 1, *cells[1:]] if self._is_wrong and row.request_id == "r1" else cells


class FailingRunner(WordRunner):
    """Every forward fails once the warm-up is over."""

    def __init__(self) -> None:
        super().__init__()
        self._arenas_opened = 0

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        self._arenas_opened += 1
        super().open_arena(arena_id, shape)

    def run(self, plan: Plan) -> Reply:
        if self._arenas_opened > 3:
            raise ForwardError("the device is on fire")
        return super().run(plan)


class InterruptedRunner(WordRunner):
    """The user presses Ctrl-C at step 5."""

    def run(self, plan: Plan) -> Reply:
        if plan.step == 5:
            raise KeyboardInterrupt
        return super().run(plan)


class UnloadableRunner(WordRunner):
    """There is no model."""

    def start(self) -> None:
        self._events.append(LoadFailed("it is not there", "fetch", "pip download it"))
