"""ShareGPT: conversations, of which the first human turn is the prompt and the reply's length the cap.

    [{"id": "a1", "conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}]

A JSON list, or one conversation a line. How long a reply is, only the model's tokenizer knows: the request
carries it along (`PromptRequest.reply`). A conversation the model begins has no prompt and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from engine.live.commands import PromptRequest
from engine.workload.lines import Asked, BadLine, Read, label_in, lines_of, object_of, text_in

FORM = 'a conversation such as {"id": "a1", "conversations": [{"from": "human", "value": "…"}]}'
_HUMAN = ("human", "user")


def read(data: bytes, asked: Asked) -> Read:
    """The requests of a file, and the conversations that have none, in order."""
    for number, unit, entry in _entries(data):
        try:
            fields = object_of(entry, FORM) if isinstance(entry, bytes) else entry
            yield _request(fields, asked)
        except ValueError as error:
            yield BadLine(number, str(error), unit)


def _entries(data: bytes) -> Iterator[tuple[int, str, Any]]:
    """Each conversation with its number and what that counts."""
    try:
        entries: Any = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        yield from ((number, "line", line) for number, line in lines_of(data))
        return
    yield from ((number, "entry", entry) for number, entry in enumerate(entries, 1))


def _request(fields: Any, asked: Asked) -> PromptRequest:
    turns = fields.get("conversations") if isinstance(fields, dict) else None
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise ValueError(f"`conversations` is missing; it must be {FORM}")
    turns = [turn for turn in turns if turn.get("from") != "system"]
    if not turns:
        raise ValueError("`conversations` is empty")
    if turns[0].get("from") not in _HUMAN:
        raise ValueError("the conversation begins with the model, so it has no prompt")
    reply = turns[1].get("value") if len(turns) > 1 and turns[1].get("from") not in _HUMAN else None
    reply = reply if isinstance(reply, str) else ""
    # A token is a byte at least, so this is the most the reply can take until its tokens are counted.
    most = len(reply.encode("utf-8", "replace"))
    if not most and asked.max_tokens is None:
        raise ValueError("there is no reply to take the length from (give --max-tokens)")
    return msgspec.structs.replace(
        asked.request,
        prompt=text_in(turns[0].get("value"), "value"),
        reply=reply,
        max_tokens=most or asked.max_tokens or 1,
        label=label_in(fields.get("id", ""), "id"),
    )
