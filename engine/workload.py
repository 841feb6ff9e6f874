"""Request files: JSON Lines with `prompt` and `output_tokens`, or plain text with a prompt a line.

Owns the words for what is wrong with a line. Knows nothing of tokenizers or engines. A line is what
stands between line feeds (a carriage return before one is dropped), so that a prompt may hold any other
separator Unicode knows.

    {"prompt": "The capital of France is", "output_tokens": 6}
    {"custom_id": "weather", "prompt": "Today's weather is so", "output_tokens": 50, "priority": -1}
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from importlib import resources
from typing import Any

import msgspec

from engine.commands import PromptRequest

#: The most output tokens a line may ask for; an engine's `max_model_len` is far below.
MOST_OUTPUT_TOKENS = 1_000_000
#: The largest `priority` either way; larger ones would outlive any ageing.
MOST_PRIORITY = 1_000
_FORM = 'an object such as {"prompt": "Once upon a time", "output_tokens": 30}'
_OTHERS = "other workload formats cannot be read yet"


class BadLine(msgspec.Struct, frozen=True):
    """A line that asks for nothing that could be run: its number, from 1, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class WorkloadError(ValueError):
    """A workload that cannot be used; the message is one sentence for the user."""


def tutorial_workload() -> list[PromptRequest]:
    """The tutorial's six requests: raw prompts, run to their caps whatever end-of-sequence says."""
    data = resources.files("engine").joinpath("workloads", "tutorial.jsonl").read_bytes()
    requests = require_all(list(read_json_lines(data)), "tutorial.jsonl")
    return [msgspec.structs.replace(request, ignore_eos=True) for request in requests]


def read_json_lines(data: bytes, max_tokens: int | None = None) -> Iterator[PromptRequest | BadLine]:
    """The requests of a JSON Lines file and its bad lines, in order. Blank lines are skipped.

    Args:
        data: the file; a UTF-8 byte order mark is ignored.
        max_tokens: the cap of lines without `output_tokens`; None: they must have it.
    """
    for number, line in _lines(data):
        try:
            yield _request(line, max_tokens)
        except ValueError as error:
            yield BadLine(number, str(error))


def read_text_lines(data: bytes, max_tokens: int) -> Iterator[PromptRequest | BadLine]:
    """A prompt a line, as it stands; blank lines are skipped."""
    for number, line in _lines(data):
        try:
            yield PromptRequest(prompt=_text(line), max_tokens=max_tokens)
        except ValueError as error:
            yield BadLine(number, str(error))


def is_json_lines(data: bytes) -> bool:
    """Whether the first line that is not blank begins a JSON object."""
    return next((line.lstrip().startswith(b"{") for _, line in _lines(data)), False)


def require_all(lines: list[PromptRequest | BadLine], name: str) -> list[PromptRequest]:
    """The requests of a workload that must be whole.

    Args:
        name: of the file, for the message.

    Raises:
        WorkloadError: there is a bad line (the first is named), or nothing at all.
    """
    bad = [line for line in lines if isinstance(line, BadLine)]
    if bad:
        more = f" ({len(bad) - 1} more bad lines)" if len(bad) > 1 else ""
        raise WorkloadError(f"{name}, {bad[0]}{more}")
    requests = [line for line in lines if isinstance(line, PromptRequest)]
    if not requests:
        raise WorkloadError(f"{name} holds no requests: each line must be {_FORM}")
    return requests


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if line.strip():
            yield number, line


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start + 1})") from None


def _request(line: bytes, max_tokens: int | None) -> PromptRequest:
    """A line's request.

    Raises:
        ValueError: why it is none.
    """
    _text(line)
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); each line must be {_FORM}; {_OTHERS}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object; each line must be {_FORM}; {_OTHERS}")
    if "prompt" not in fields:
        raise ValueError(f"`prompt` is missing; each line must be {_FORM}; {_OTHERS}")
    return PromptRequest(
        prompt=_prompt(fields["prompt"]),
        max_tokens=_output_tokens(fields.get("output_tokens"), max_tokens),
        label=_label(fields),
        priority=_priority(fields.get("priority", 0)),
    )


def _prompt(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`prompt` must be a string, not {_shown(value)}")
    if not value:
        raise ValueError("`prompt` is empty")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("`prompt` is not valid Unicode (half of a surrogate pair)")
    return value


def _output_tokens(value: Any, max_tokens: int | None) -> int:
    if value is None:
        if max_tokens is None:
            raise ValueError("`output_tokens` is missing (or give --max-tokens)")
        return max_tokens
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"`output_tokens` must be a whole number, not {_shown(value)}")
    if not 1 <= value <= MOST_OUTPUT_TOKENS:
        raise ValueError(f"`output_tokens` must be from 1 to {MOST_OUTPUT_TOKENS:,}, not {_shown(value)}")
    return int(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_PRIORITY:
        raise ValueError(
            f"`priority` must be a whole number from -{MOST_PRIORITY:,} to {MOST_PRIORITY:,} (lower enters "
            f"earlier), not {_shown(value)}"
        )
    return value


def _label(fields: dict[str, Any]) -> str:
    value = fields.get("custom_id", fields.get("label", ""))
    if not isinstance(value, str | int):
        raise ValueError(f"`custom_id` must be a string, not {_shown(value)}")
    return str(value)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:39] + "…"
