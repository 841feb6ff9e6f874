"""Prompts that are too many or too long for one message, and answers put together again."""

from __future__ import annotations

import pytest

from engine.runner import Encoded, EncodedPrompt, Message, PromptInput
from engine.worker import questions
from engine.worker.questions import MOST_PROMPT_BYTES, Questions
from engine.worker.wire import to_frame


def answered(asked: Questions, ticket: int, prompts: list[PromptInput]) -> Encoded:
    """What comes of a question where every prompt is answered by its length."""
    whole = None
    orders = asked.ask(ticket, prompts)
    for order in orders:
        to_frame(order)
        assert whole is None
        whole = asked.answer(ticket, [EncodedPrompt([len(prompt.text)]) for prompt in order.prompts])
    if not orders:
        whole = asked.answer(ticket)
    assert whole is not None
    return whole


def test_many_prompts_go_in_several_messages_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_MESSAGE_BYTES", 1000)
    prompts = [PromptInput("x" * (number % 300)) for number in range(100)]
    assert len(Questions().ask(1, prompts)) > 10
    whole = answered(Questions(), 1, prompts)
    assert [prompt.token_ids[0] for prompt in whole.prompts] == [len(prompt.text) for prompt in prompts]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (PromptInput("x" * (MOST_PROMPT_BYTES + 1)), "bytes are the most"),
        (PromptInput("\ud800"), "not valid Unicode"),
        (PromptInput("", True, (Message("user", "\udcff"),)), "not valid Unicode"),
    ],
    ids=["too long", "half a pair", "half a pair in a turn"],
)
def test_a_prompt_that_cannot_be_sent_takes_no_neighbour_along(bad: PromptInput, words: str) -> None:
    whole = answered(Questions(), 3, [PromptInput("one"), bad, PromptInput("three")])
    assert [prompt.token_ids for prompt in whole.prompts] == [[3], [], [5]]
    assert words in whole.prompts[1].error
    alone = answered(Questions(), 4, [bad])
    assert words in alone.prompts[0].error


def test_nothing_asked_is_nothing_answered() -> None:
    assert answered(Questions(), 1, []) == Encoded(1, [])


def test_what_a_dead_worker_was_asked_is_forgotten() -> None:
    asked = Questions()
    asked.ask(1, [PromptInput("one")])
    asked.forget()
    assert answered(asked, 1, [PromptInput("again")]).prompts[0].token_ids == [5]
