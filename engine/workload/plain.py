"""Plain text: a prompt a line, as it stands."""

from __future__ import annotations

import codecs

import msgspec

from engine.workload.lines import Asked, BadLine, Read, WorkloadError, lines_of, text_of


def read(data: bytes, asked: Asked) -> Read:
    """The prompts of a file; blank lines are skipped. All take the length they are asked with.

    Raises:
        WorkloadError: it is no text at all, but some program's own file.
    """
    if (place := data.find(b"\0")) >= 0:
        kind = "UTF-16 text" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "no text"
        raise WorkloadError(f"{kind}: byte {place + 1:,} is NUL; prompts are UTF-8 text, one a line")
    for number, line in lines_of(data):
        try:
            if asked.max_tokens is None:
                raise ValueError("a prompt without a length (give --max-tokens)")
            yield msgspec.structs.replace(asked.request, prompt=text_of(line), max_tokens=asked.max_tokens)
        except ValueError as error:
            yield BadLine(number, str(error))
