"""Which prompts are offered, and which are told that they look meant for the other way to send them."""

from __future__ import annotations

import pytest

from cbtui.telling.first_prompts import BEGINNINGS, QUESTIONS, examples, hint


@pytest.mark.parametrize("is_chat", [True, False])
def test_no_example_is_told_to_be_sent_the_other_way(is_chat: bool) -> None:
    assert all(hint(text, is_chat=is_chat, has_other=True) == "" for text in examples(is_chat=is_chat))


@pytest.mark.parametrize("text", BEGINNINGS)
def test_the_beginning_of_a_sentence_in_chat_is(text: str) -> None:
    assert "as a chat message" in hint(text, is_chat=True, has_other=True)


@pytest.mark.parametrize("text", [one for one in QUESTIONS if one.endswith("?")])
def test_a_question_that_will_only_be_continued_is(text: str) -> None:
    assert "as it stands" in hint(text, is_chat=False, has_other=True)


@pytest.mark.parametrize("text", QUESTIONS)
def test_nothing_is_said_of_a_template_that_is_not_there(text: str) -> None:
    assert hint(text, is_chat=False, has_other=False) == ""
