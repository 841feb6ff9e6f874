"""Plain text: a prompt a line, as it stands."""

from __future__ import annotations

import msgspec

from engine.workload.lines import Asked, BadLine, Read, lines_of, text_of


def read(data: bytes, asked: Asked) -> Read:
    """The prompts of a file; blank lines are skipped. All take the length they are asked with."""
    for number, line in lines_of(data):
        try:
            if asked.max_tokens is None:
                raise ValueError("a prompt without a length (give --max-tokens)")
            yield msgspec.structs.replace(asked.request, prompt=text_of(line), max_tokens=asked.max_tokens)
        except ValueError as error:
            yield BadLine(number, str(error))
