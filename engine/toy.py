"""A toy language model for lessons: words, a little grammar, and a clock of its own. Needs no weights.

What it says is decided by the tokens it **reads through the block table**, like the fake runner it is
made of: the class of the next word follows from the last one, which word of the class from a hash of all
that may be seen. So its outputs are independent of batching exactly as far as the engine is right.

Its clock is a pretence, in proportion like a small model's on a processor: `STEP_S` a step for reading
the weights, and `TOKEN_S` for each token position, padding and dead work included.
"""

from __future__ import annotations

import re
from zlib import crc32

import msgspec

from engine.fake import FakeRunner
from engine.runner import Encoded, EncodedPrompt, PromptInput
from engine.step.plan import Plan, PlanRow, Reply, SampledToken

STEP_S = 0.030
TOKEN_S = 0.001

_WORDS: dict[str, tuple[str, ...]] = {
    "article": (" the", " a", " one", " every", " that"),
    "adjective": (" small", " old", " quiet", " bright", " slow", " narrow", " green", " distant"),
    "noun": (
        " river",
        " lamp",
        " ship",
        " keeper",
        " garden",
        " road",
        " harbour",
        " letter",
        " bird",
        " door",
    ),
    "verb": (" finds", " follows", " carries", " watches", " remembers", " passes", " leaves", " meets"),
    "place": (" under", " beside", " behind", " above", " near", " across"),
}
#: Which classes may follow a word of a class; what is no word of these is followed by an article.
_NEXT = {
    "article": ("adjective", "noun", "noun"),
    "adjective": ("noun",),
    "noun": ("verb", "verb", "place"),
    "verb": ("article",),
    "place": ("article",),
}
_PIECE = re.compile(r" ?[^\W_]+(?:['’]\w+)?| ?[^\w\s]|\s")
_CLASS = {word: name for name, words in _WORDS.items() for word in words}


class ToyRunner(FakeRunner):
    """Implements `ModelRunner`; a word is a token. `now_s` is its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._ids = {word: number for number, word in enumerate(_CLASS)}
        self._words = list(self._ids)
        self.info = msgspec.structs.replace(self.info, name="toy model", source="toy", vocab_size=0)

    def token_bytes(self, token_id: int) -> bytes:
        """A word's bytes."""
        return self._words[token_id].encode()

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        """Words are tokens; one not met before is learnt."""
        encoded = [EncodedPrompt([self._id(word) for word in _PIECE.findall(p.text)]) for p in prompts]
        self._events.append(Encoded(ticket, encoded))

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self._words)
            self._words.append(word)
        return self._ids[word]

    def run(self, plan: Plan) -> Reply:
        """Run a plan; the clock advances by what its tensor holds."""
        lengths = [len(row.token_ids) for row in plan.rows]
        positions = sum(lengths) if plan.layout == "ragged" else len(lengths) * max(lengths)
        forward_s = STEP_S + TOKEN_S * positions
        self.now_s += forward_s
        return msgspec.structs.replace(super().run(plan), forward_s=forward_s)

    def _sample(self, row: PlanRow, seen: list[tuple[int, int]]) -> SampledToken:
        last = self._words[seen[-1][1]]
        digest = crc32(repr(seen).encode())
        classes = _NEXT.get(_CLASS.get(last, ""), ("article",))
        words = _WORDS[classes[digest % len(classes)]]
        first = digest // 7 % len(words)
        ranked = [self._ids[words[(first + n) % len(words)]] for n in range(row.n_top)]
        top = [(token, -0.7 - 0.8 * n) for n, token in enumerate(ranked)]
        return SampledToken(self._ids[words[first]], -0.7, top)
