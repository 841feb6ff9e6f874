"""The OpenAI route of a server, as its own documentation has it: what a prompt is sent as, and what comes
back, piece by piece. Pure.

Two dialects are spoken beside the standard, both only to learn more: llama.cpp counts tokens in every
piece (`timings_per_token`) and gives their ids; vLLM counts them, too (`continuous_usage_stats`), and gives
ids (`return_token_ids`). A server that knows neither ignores them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.live.commands import PromptRequest

#: Likeliest tokens asked for beside each one.
N_TOP = 5


class BadAnswer(ValueError):
    """A piece of an answer that is none; one sentence."""


class Token(msgspec.Struct, frozen=True):
    """An output token: its id where the server tells it, its bytes, and how likely it and others were."""

    token_id: int | None
    data: bytes
    logprob: float | None = None
    top: tuple[tuple[int, bytes, float], ...] = ()


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed answer.

    Attributes:
        tokens: new ones; of several that make up one text, the last has it.
        finish_reason: stop or length, with the last token or after it.
        stop_string: the one that ended it, where the server tells it.
        num_prompt, num_output, num_cached: the server's own count, at the end.
        prompt_token_ids: where the server tells them.
        error: what the server says went wrong.
    """

    tokens: tuple[Token, ...] = ()
    finish_reason: str = ""
    stop_string: str = ""
    num_prompt: int | None = None
    num_output: int | None = None
    num_cached: int | None = None
    prompt_token_ids: tuple[int, ...] = ()
    error: str = ""


def route_of(request: PromptRequest) -> str:
    """Where a request is sent."""
    return "/v1/chat/completions" if request.chat else "/v1/completions"


def body_of(
    request: PromptRequest, model: str, seed: int, *, plain: bool = False, n_top: int = N_TOP
) -> dict[str, object]:
    """What is sent for a request.

    Args:
        model: as the server names it.
        seed: sent along; the request can be recognised by it.
        plain: the standard's fields alone.
        n_top: likeliest tokens to tell beside each one; 0: nothing of how likely they are.
    """
    body: dict[str, object] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.chat:
        turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
        body["messages"] = turns or [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt or "\n\n".join(turn.content for turn in request.messages)
    if request.stop:
        body["stop"] = list(request.stop)
    if request.top_p != 1.0:
        body["top_p"] = request.top_p
    if plain:
        return body
    if n_top:
        body |= {"logprobs": True, "top_logprobs": n_top} if request.chat else {"logprobs": n_top}
    body |= {"timings_per_token": True, "return_token_ids": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if request.top_k:
        body["top_k"] = request.top_k
    if request.ignore_eos:
        body["ignore_eos"] = True
    if request.stop_token_ids:
        body["stop_token_ids"] = list(request.stop_token_ids)
    return body


def data_of(line: str) -> str | None:
    """What a line of an event stream carries; None: nothing (a comment, an empty line, the end)."""
    if not line.startswith("data:"):
        return None
    data = line.removeprefix("data:").strip()
    return data if data and data != "[DONE]" else None


def read_piece(data: str | bytes, num_before: int) -> Piece:
    """One event.

    Args:
        num_before: output tokens of the events before it.

    Raises:
        BadAnswer: it is none.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadAnswer("the server's answer is not JSON") from None
    if not isinstance(found, dict):
        raise BadAnswer("the server's answer is no object")
    if error := found.get("error"):
        return Piece(error=error_of(found) or str(error))
    choice = _dict(_first(found.get("choices")))
    usage, timings = _dict(found.get("usage")), _dict(found.get("timings"))
    delta = _dict(choice.get("delta"))
    text = choice.get("text") if "text" in choice else _joined(delta)
    return Piece(
        tokens=_tokens(
            text if isinstance(text, str) else "",
            choice.get("logprobs"),
            _ids(choice.get("token_ids")),
            _first_count(timings.get("predicted_n"), usage.get("completion_tokens")),
            num_before,
        ),
        finish_reason=reason if isinstance(reason := choice.get("finish_reason"), str) else "",
        stop_string=string if isinstance(string := choice.get("stop_reason"), str) else "",
        num_prompt=_count(usage.get("prompt_tokens")),
        num_output=_count(usage.get("completion_tokens")),
        num_cached=_count(_dict(usage.get("prompt_tokens_details")).get("cached_tokens")),
        prompt_token_ids=_ids(choice.get("prompt_token_ids") or found.get("prompt_token_ids")),
    )


def error_of(found: object) -> str:
    """What an error answer says; empty: nothing."""
    error = _dict(found).get("error", found)
    message = _dict(error).get("message", error if isinstance(error, str) else "")
    return message if isinstance(message, str) else ""


def _tokens(
    text: str, logprobs: object, ids: tuple[int, ...], counted: int | None, num_before: int
) -> tuple[Token, ...]:
    told = _told(logprobs)
    if ids:
        num = len(ids)
    elif counted is not None and text:
        num = max(1, counted - num_before)
    else:
        num = max(len(told), 1 if text else 0)
    data = text.encode("utf-8", "surrogatepass") if text else b""
    if num == 1:
        one = told[0] if len(told) == 1 else Token(None, data)
        return (
            msgspec.structs.replace(one, token_id=ids[0] if ids else one.token_id, data=one.data or data),
        )
    if len(told) == num:
        return tuple(
            msgspec.structs.replace(one, token_id=token_id) if token_id is not None else one
            for one, token_id in zip(told, ids or (None,) * num, strict=True)
        )
    # Several tokens of which only the text is known: it stands with the last of them.
    silent = tuple(Token(token_id, b"") for token_id in ids[:-1]) or (Token(None, b""),) * max(0, num - 1)
    return (*silent, Token(None, data)) if num else ()


def _told(logprobs: object) -> list[Token]:
    """Tokens as `logprobs` lists them: a list of objects (chat, llama.cpp), or parallel lists."""
    told = _dict(logprobs)
    if isinstance(content := told.get("content"), list):
        return [_told_one(_dict(one)) for one in content]
    tokens, values = told.get("tokens"), told.get("token_logprobs")
    if not isinstance(tokens, list):
        return []
    values = values if isinstance(values, list) and len(values) == len(tokens) else [None] * len(tokens)
    return [
        Token(None, token.encode("utf-8", "surrogatepass"), _number(value))
        for token, value in zip(tokens, values, strict=True)
        if isinstance(token, str)
    ]


def _told_one(one: dict[str, Any]) -> Token:
    top = [_dict(other) for other in one.get("top_logprobs") or () if isinstance(other, dict)]
    return Token(
        _count(one.get("id")),
        _bytes(one),
        _number(one.get("logprob")),
        tuple(
            (token_id, _bytes(other), logprob)
            for other in top
            if (token_id := _count(other.get("id"))) is not None
            and (logprob := _number(other.get("logprob"))) is not None
        ),
    )


def _bytes(one: dict[str, Any]) -> bytes:
    data = one.get("bytes")
    if isinstance(data, list) and all(isinstance(n, int) and 0 <= n < 256 for n in data):
        return bytes(data)
    token = one.get("token")
    return token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""


def _joined(delta: dict[str, Any]) -> str:
    parts = (delta.get("reasoning_content"), delta.get("reasoning"), delta.get("content"))
    return "".join(part for part in parts if isinstance(part, str))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _ids(value: object) -> tuple[int, ...]:
    if isinstance(value, list) and all(_count(one) is not None for one in value):
        return tuple(value)
    return ()


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_count and isinstance(value, int) else None


def _first_count(*values: object) -> int | None:
    return next((found for value in values if (found := _count(value)) is not None), None)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
