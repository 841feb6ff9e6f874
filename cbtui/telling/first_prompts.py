"""Prompts to begin with, and a word to whoever types one that is meant for the other way to send it.

A small chat model answers a question well and rambles when it is handed the beginning of a sentence; sent as
it stands, the sentence is continued and a question ends at once. Pure.
"""

from __future__ import annotations

#: Answered by the default model as one would expect, in few tokens and in many.
QUESTIONS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Explain gravity in one sentence.",
    "What is machine learning?",
)
#: Continued by it as one would expect.
BEGINNINGS = (
    "The capital of France is",
    "Once upon a time",
    "Water boils at",
    "Today the weather is so cold that",
)
#: What ends a message.
_ENDS = (*".?!:;…)]}\"'»。？！", "```")


def examples(*, is_chat: bool) -> tuple[str, ...]:
    """Prompts that suit the way they are sent."""
    return QUESTIONS if is_chat else BEGINNINGS


def hint(prompt: str, *, is_chat: bool, has_other: bool) -> str:
    """How a prompt was sent and what the other way is, where it looks meant for that; else nothing.

    Args:
        has_other: the model knows both ways.
    """
    text = prompt.rstrip()
    if is_chat and not text.endswith(_ENDS):
        return "sent as a chat message; after Esc c a text is continued as it stands"
    if not is_chat and has_other and text.endswith(("?", "？")):
        return "continued as it stands; after Esc c it is asked as a chat message"
    return ""
