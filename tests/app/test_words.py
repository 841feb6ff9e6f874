from __future__ import annotations

import pytest

from cbtui.telling.words import sampling_words
from engine.live.commands import PromptRequest


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "greedy"),
        ({"top_k": 40}, "greedy"),
        ({"temperature": 0.7}, "T 0.7"),
        ({"temperature": 1.0, "top_k": 40, "top_p": 0.95}, "T 1 top-k 40 top-p 0.95"),
    ],
)
def test_how_tokens_are_chosen(asked: dict[str, float], words: str) -> None:
    assert sampling_words(PromptRequest(prompt="", **asked)) == words  # type: ignore[arg-type]
