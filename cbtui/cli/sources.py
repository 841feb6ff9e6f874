"""Request files and piped prompts, read from where the command line says."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from cbtui.cli.console import CommandError
from engine.commands import PromptRequest
from engine.workload import BadLine, is_json_lines, read_json_lines, read_text_lines, require_all


def read_bytes(source: str) -> tuple[str, bytes]:
    """The name, for messages, and content of a file; `-` is standard input.

    Raises:
        CommandError: it cannot be read.
    """
    if source == "-":
        return "standard input", sys.stdin.buffer.read()
    try:
        return source, Path(source).expanduser().read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {source}: {error.strerror or error}") from None


def read_prompts(data: bytes, max_tokens: int | None, default: int) -> list[PromptRequest | BadLine]:
    """JSON Lines where the first line is an object, otherwise a prompt a line.

    Args:
        max_tokens: cap on every request; None: none but its own.
        default: output tokens of a request that does not say.
    """
    limit = default if max_tokens is None else max_tokens
    if is_json_lines(data):
        return list(read_json_lines(data, limit))
    return list(read_text_lines(data, limit))


def requests_of(source: str, max_tokens: int | None, default: int) -> list[PromptRequest]:
    """The requests of a file that must be whole; for the options see `read_prompts`.

    Raises:
        CommandError: it cannot be read.
        WorkloadError: there is a bad line, or nothing at all.
    """
    name, data = read_bytes(source)
    requests = require_all(read_prompts(data, max_tokens, default), name)
    if max_tokens is None:
        return requests
    return [msgspec.structs.replace(one, max_tokens=min(one.max_tokens, max_tokens)) for one in requests]
