"""The formats and how each is told by what is in the file; its name says nothing.

To add one: a module with a `read`, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from typing import Any

import msgspec

from engine.live.commands import PromptRequest
from engine.workload import custom, lengths, openai_batch, plain, sharegpt
from engine.workload.lines import Asked, BadLine, Read, WorkloadError, columns_of, lines_of

#: Lines looked at to find one that says what the file is.
_LINES_LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, its reader, and what a file of it has in it.

    `keys`: a JSON object with one of these is of it. `columns`: a CSV header with all of these is.
    """

    name: str
    read: Callable[[bytes, Asked], Read]
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


PLAIN = Format("plain text", plain.read)
CUSTOM = Format("custom", custom.read)
FORMATS = (
    Format("OpenAI batch", openai_batch.read, keys=("body", "url")),
    Format("ShareGPT", sharegpt.read, keys=("conversations",)),
    Format("Mooncake", lengths.read_mooncake, keys=("input_length", "hash_ids")),
    Format("Azure", lengths.read_azure, columns=lengths.AZURE_COLUMNS),
    Format("BurstGPT", lengths.read_burstgpt, columns=lengths.BURSTGPT_COLUMNS),
    Format("Vidur", lengths.read_vidur, columns=lengths.VIDUR_COLUMNS),
    CUSTOM,
    PLAIN,
)


def format_of(data: bytes) -> Format:
    """What a file is: by its first JSON object, or by its CSV header; else plain text, a prompt a line."""
    columns = columns_of(data)
    for one in FORMATS:
        if one.columns and set(one.columns) <= set(columns):
            return one
    if not is_json(data):
        return PLAIN
    for fields in _objects(data):
        for one in FORMATS:
            if any(key in fields for key in one.keys):
                return one
        if "prompt" in fields:
            break
    return CUSTOM


def read_workload(data: bytes, asked: Asked, limit: int | None = None) -> list[PromptRequest | BadLine]:
    """The requests of a file of any format, and the bad lines before the last one taken, in order.

    Args:
        limit: take so many requests, the first ones; None: all.
    """
    lines = format_of(data).read(data, asked)
    return list(lines if limit is None else _first(lines, limit))


def is_json(data: bytes) -> bool:
    """Whether the first line that is not blank begins a JSON object, or the file is a JSON list of them."""
    head = next((line.lstrip()[:1] for _, line in lines_of(data)), b"")
    return head == b"{" or (head == b"[" and next(_objects(data), None) is not None)


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
        raise WorkloadError(f"{name} holds no requests: each line must be {custom.FORM}")
    return requests


def tutorial_workload() -> list[PromptRequest]:
    """The tutorial's six requests: raw prompts, run to their caps whatever end-of-sequence says."""
    data = resources.files("engine").joinpath("workload", "tutorial.jsonl").read_bytes()
    asked = Asked(request=PromptRequest(prompt="", ignore_eos=True))
    return require_all(read_workload(data, asked), "tutorial.jsonl")


def _first(lines: Iterator[PromptRequest | BadLine], limit: int) -> Iterator[PromptRequest | BadLine]:
    left = limit
    for line in lines:
        if isinstance(line, PromptRequest):
            left -= 1
        yield line
        if not left:
            return


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects near the beginning, of JSON Lines or of a JSON list."""
    for line in (line for _, line in islice(lines_of(data), _LINES_LOOKED_AT)):
        value = _decoded(line)
        if isinstance(value, dict):
            yield value
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        value = _decoded(data.removeprefix(b"\xef\xbb\xbf"))
        if isinstance(value, list):
            yield from (one for one in value[:_LINES_LOOKED_AT] if isinstance(one, dict))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
