"""OpenAI batch input: a request of `/v1/chat/completions` or `/v1/completions` a line.

    {"custom_id": "greet", "method": "POST", "url": "/v1/chat/completions",
     "body": {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40}}

`model` is not looked at: the model is the one the program runs. What the engine cannot do (tools, several
choices, images, a forced format) makes a line a bad one instead of being passed over in silence.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.live.commands import PromptRequest
from engine.runner import Message
from engine.workload.lines import (
    Asked,
    BadLine,
    Read,
    count_in,
    label_in,
    lines_of,
    object_of,
    shown,
    text_in,
)

FORM = 'an object such as {"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": […]}}'
CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"
_UNSUPPORTED = ("tools", "functions", "logit_bias", "frequency_penalty", "presence_penalty", "suffix")


def read(data: bytes, asked: Asked) -> Read:
    """The requests of a file and its bad lines, in order. A `custom_id` stands once."""
    seen: set[str] = set()
    for number, line in lines_of(data):
        label = ""
        try:
            fields = object_of(line, FORM)
            label = label_in(fields.get("custom_id", ""))
            if not label:
                raise ValueError("`custom_id` is missing")
            if label in seen:
                raise ValueError(f"`custom_id` {shown(label)} stands twice")
            seen.add(label)
            yield _request(fields, label, asked)
        except ValueError as error:
            yield BadLine(number, str(error), label=label)


def _request(fields: dict[str, Any], label: str, asked: Asked) -> PromptRequest:
    url, body = fields.get("url"), fields.get("body")
    if url not in (CHAT_URL, TEXT_URL):
        raise ValueError(f"`url` must be {CHAT_URL} or {TEXT_URL}, not {shown(url)}")
    if fields.get("method", "POST") != "POST":
        raise ValueError(f"`method` must be POST, not {shown(fields['method'])}")
    if not isinstance(body, dict):
        raise ValueError(f"`body` is missing; each line must be {FORM}")
    _refuse_unsupported(body)
    request = msgspec.structs.replace(asked.request, label=label, **_sampling(body, asked))
    if url == TEXT_URL:
        return msgspec.structs.replace(request, prompt=text_in(body.get("prompt"), "prompt"), verbatim=True)
    messages = _messages(body.get("messages"))
    return msgspec.structs.replace(request, prompt=messages[-1].content, messages=messages)


def _refuse_unsupported(body: dict[str, Any]) -> None:
    for name in _UNSUPPORTED:
        if body.get(name):
            raise ValueError(f"`{name}` is not supported")
    if body.get("n") not in (None, 1):
        raise ValueError("`n` must be 1")
    form = body.get("response_format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        raise ValueError(f"`response_format` must be text, not {shown(form)}")


def _sampling(body: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """What the body says of sampling; checked as the engine checks it."""
    found: dict[str, Any] = {"max_tokens": _max_tokens(body, asked)}
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"`{name}` must be a number, not {shown(value)}")
            found[name] = float(value)
    if (seed := body.get("seed")) is not None:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ValueError(f"`seed` must be a whole number, 0 or more, not {shown(seed)}")
        found["seed"] = seed
    if stop := body.get("stop"):
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
            raise ValueError(f"`stop` must be a string or a list of strings, not {shown(stop)}")
        found["stop"] = tuple(stops)
    PromptRequest(prompt="", **found).sampling(lambda: 0)
    return found


def _max_tokens(body: dict[str, Any], asked: Asked) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return count_in(body[name], name)
    if asked.max_tokens is None:
        raise ValueError("`max_tokens` is missing (or give --max-tokens)")
    return asked.max_tokens


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("`messages` must be a list with at least one message")
    return tuple(map(_message, value))


def _message(value: Any) -> Message:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError(f"a message must have `role` and `content`, not {shown(value)}")
    content = value.get("content")
    if isinstance(content, list):  # parts: only texts can be read
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise ValueError("a message may hold text only")
        content = "".join(text_in(part.get("text"), "text") for part in content)
    return Message(value["role"], text_in(content, "content"))
