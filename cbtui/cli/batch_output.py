"""Answers in the form of OpenAI's batch output: a JSON object a line, in the order they end.

A request that ran has a `response` with status 200 and no `error`; one that could not has an `error` and
no `response`.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cbtui.cli.console import CommandError, json_text
from cbtui.cli.result import ResultLine
from engine.live.feed import Entry


class BatchOutput:
    """Writes answers to an open file, each at once, so that those there are survive whatever follows."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def ended(self, entry: Entry, result: ResultLine, model: str) -> None:
        """A request has ended, well or not."""
        if result.finish_reason not in ("stop", "length"):
            self._write(custom_id(entry), None, _error(result.finish_reason, result.error))
            return
        response = {
            "status_code": 200,
            "request_id": f"req_{uuid.uuid4().hex}",
            "body": _body(entry, result, model),
        }
        self._write(custom_id(entry), response, None)

    def refused(self, name: str, why: str) -> None:
        """A request was never run."""
        self._write(name, None, _error("invalid_request", why))

    def _write(self, name: str, response: dict[str, Any] | None, error: dict[str, Any] | None) -> None:
        line = {
            "id": f"batch_req_{uuid.uuid4().hex}",
            "custom_id": name,
            "response": response,
            "error": error,
        }
        try:
            self._file.write(json_text(line).encode() + b"\n")
            self._file.flush()
        except BrokenPipeError:
            raise BrokenPipeError from None
        except OSError as error_:
            raise CommandError(f"the answers cannot be written: {error_.strerror or error_}") from None


@contextmanager
def batch_output(path: str | None) -> Iterator[BatchOutput | None]:
    """The file to write answers to; None: there is none.

    Args:
        path: `-` is standard output. A file that is there is replaced.

    Raises:
        CommandError: it cannot be written.
    """
    if path is None:
        yield None
    elif path == "-":
        yield BatchOutput(sys.stdout.buffer)
    else:
        target = Path(os.path.expanduser(path))
        try:
            file = target.open("wb")
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror or error}") from None
        with file:
            yield BatchOutput(file)


def custom_id(entry: Entry) -> str:
    """The name of a request: its own, or one from its number in the file."""
    return entry.request.label or f"request-{entry.number}"


def _body(entry: Entry, result: ResultLine, model: str) -> dict[str, Any]:
    is_chat = entry.request.chat or bool(entry.request.messages)
    choice: dict[str, Any] = {"index": 0}
    if is_chat:
        choice["message"] = {"role": "assistant", "content": result.text}
    else:
        choice["text"] = result.text
    choice |= {"logprobs": None, "finish_reason": result.finish_reason}
    return {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": result.output_tokens,
            "total_tokens": result.prompt_tokens + result.output_tokens,
        },
    }


def _error(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}
