"""A recording vLLM's stream, line by line: what `StreamSource` and the replay of a file both read it with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO

import msgspec

from engine.attach import vllm_lines
from engine.attach.source import Opened
from engine.attach.vllm_facts import config_of, info_of, provenance_of, unfit
from engine.attach.vllm_fold import VllmFold
from engine.attach.vllm_lines import Header
from engine.stream.records import Record
from engine.stream.trace import TraceError, read_line
from engine.token_text import TokenBytes


class Unfit(TraceError):
    """A stream that can be read, but not be followed."""


class VllmLines:
    """Reads lines into records. One stays in use over a loss of the server and its return.

    Args:
        address: where the stream comes from.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._fold: VllmFold | None = None
        self._early: list[Record] = []

    def begin(self, line: bytes) -> Opened:
        """Take the header.

        Raises:
            TraceError: it is none.
            Unfit: what it announces cannot be followed, in a sentence.
        """
        header = _decoded(line, 1)
        if not isinstance(header, Header):
            raise TraceError("line 1: not a header")
        if reason := unfit(header):
            raise Unfit(reason)
        tokenizer = tokenizer_file(header.tokenizer)
        info = info_of(header, str(tokenizer or ""), has_chat_template=_has_chat_template(tokenizer))
        if self._fold is None:
            self._fold = VllmFold(TokenBytes(tokenizer) if tokenizer else None)
        self._early += self._fold.take(header)
        return Opened(
            info=info,
            config=config_of(header),
            provenance=provenance_of(header, self._address),
        )

    @property
    def over(self) -> str:
        """Why nothing more will come, as the server's last line said; empty: it said nothing."""
        return self._fold.over if self._fold is not None else ""

    def take_index(self) -> int:
        """The next arrival number, for a request that is not in the stream."""
        assert self._fold is not None
        return self._fold.take_index()

    def records(self, line: bytes, number: int) -> list[Record]:
        """The records a later line completes.

        Raises:
            TraceError: it is none.
        """
        assert self._fold is not None
        early, self._early = self._early, []
        return early + self._fold.take(_decoded(line, number))


def read_stream(file: IO[bytes], reader: VllmLines) -> Iterator[Record]:
    """The records of a recorded stream, after its header.

    Raises:
        TraceError: at the first line that is none; what came before has been yielded.
    """
    for number in count(2):
        line = read_line(file, number)
        if not line:
            return
        if not line.endswith(b"\n"):
            raise TraceError(f"line {number}: the stream is cut off here")
        yield from reader.records(line, number)


def tokenizer_file(name: str) -> Path | None:
    """The `tokenizer.json` of a model by the name its server gave: a folder, or a Hub id in the Hub's cache
    of this machine; None: it is not here, and nothing is fetched."""
    folder = Path(name)
    if folder.is_dir():
        found = folder / "tokenizer.json"
        return found if found.is_file() else None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    files = [one for one in snapshots.glob("*/tokenizer.json") if one.is_file()]
    return max(files, key=lambda one: one.stat().st_mtime, default=None)


def _has_chat_template(tokenizer: Path | None) -> bool:
    if tokenizer is None:
        return False
    if (tokenizer.parent / "chat_template.jinja").is_file():
        return True
    try:
        return '"chat_template"' in (tokenizer.parent / "tokenizer_config.json").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _decoded(line: bytes, number: int) -> vllm_lines.Line:
    try:
        return vllm_lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise TraceError(f"line {number}: {exc}") from None
