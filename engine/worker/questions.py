"""Prompts to encode, cut into messages that fit the wire, and their answers put together again.

A prompt that cannot be sent (too long, no Unicode) is answered here with the reason, so that it takes none
of its neighbours along. Does no input or output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.runner import Encoded, EncodedPrompt, PromptInput
from engine.worker.wire import Encode

#: The longest prompt, bytes of UTF-8: millions of tokens. Its ids, five bytes each at most, fit one frame.
MOST_PROMPT_BYTES = 8 * 2**20
#: Prompts of one message, bytes together at most.
_MESSAGE_BYTES = 8 * 2**20
#: What a prompt takes beside its text, about.
_EACH_BYTES = 64


@dataclass(slots=True)
class _Question:
    """A ticket under way: each prompt's answer, and which places each message still to be answered has."""

    answers: list[EncodedPrompt | None]
    messages: list[list[int]] = field(default_factory=list)


class Questions:
    """The tickets of one worker that have no whole answer yet."""

    def __init__(self) -> None:
        self._asked: dict[int, _Question] = {}

    def ask(self, ticket: int, prompts: Sequence[PromptInput]) -> list[Encode]:
        """The messages to send, in order; none where nothing can be sent: then `answer(ticket)` is whole."""
        question = self._asked[ticket] = _Question([None] * len(prompts))
        orders: list[Encode] = []
        room = 0
        for place, prompt in enumerate(prompts):
            size = _size(prompt)
            if isinstance(size, str):
                question.answers[place] = EncodedPrompt([], error=size)
                continue
            if size > room:
                orders.append(Encode(ticket, []))
                question.messages.append([])
                room = _MESSAGE_BYTES
            room -= size
            orders[-1].prompts.append(prompt)
            question.messages[-1].append(place)
        return orders

    def answer(self, ticket: int, prompts: Sequence[EncodedPrompt] = ()) -> Encoded | None:
        """Take in the answer to a message of a ticket; the whole, once it is there.

        An answer nobody waits for, or of another length than its question, is passed on as it came.
        """
        question = self._asked.get(ticket)
        if question is None or (question.messages and len(question.messages[0]) != len(prompts)):
            return Encoded(ticket, list(prompts))
        if question.messages:
            for place, prompt in zip(question.messages.pop(0), prompts, strict=True):
                question.answers[place] = prompt
        if question.messages:
            return None
        del self._asked[ticket]
        return Encoded(ticket, [prompt for prompt in question.answers if prompt is not None])

    def forget(self) -> None:
        """The worker is gone, and with it all it was asked."""
        self._asked.clear()


def _size(prompt: PromptInput) -> int | str:
    """Bytes a prompt takes in a message; a text: why it cannot be sent."""
    texts = [prompt.text, *(text for turn in prompt.messages for text in (turn.role, turn.content))]
    try:
        size = sum(len(text.encode()) for text in texts)
    except UnicodeEncodeError as error:
        return f"the prompt is not valid Unicode: {error.reason}"
    if size > MOST_PROMPT_BYTES:
        return f"the prompt is {size:,} bytes long; {MOST_PROMPT_BYTES:,} bytes are the most"
    return size + _EACH_BYTES * (1 + len(prompt.messages))
