"""The requests every engine is given, as token ids."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from engine.workload import tutorial_workload

#: (prompt ids, output tokens).
Job = tuple[list[int], int]
_PASSAGE = Path(__file__).parents[2] / "engine" / "workload" / "passage.txt"


def tutorial(model: Path) -> list[Job]:
    """The tutorial's six requests."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    return [(tokenizer.encode(one.prompt).ids, one.max_tokens) for one in tutorial_workload()]


def mixed(model: Path, count: int = 32) -> list[Job]:
    """Pieces of a text, 4 to 300 tokens long, with 8 to 128 tokens to go; always the same ones."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode(_PASSAGE.read_text("utf-8")).ids
    ids = ids * (1 + 2000 // len(ids))
    random = Random(32)
    jobs = []
    for _ in range(count):
        length = random.choice((random.randint(4, 40), random.randint(40, 300)))
        start = random.randrange(len(ids) - length)
        jobs.append((ids[start : start + length], random.randint(8, 128)))
    return jobs
