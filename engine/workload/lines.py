"""What every format shares: lines of a file, bad ones among them, and checks of single values.

Knows nothing of tokenizers or engines, nor of any format. A line is what stands between line feeds (a
carriage return before one is dropped), so that a prompt may hold any other separator Unicode knows.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from engine.live.commands import PromptRequest

#: The most output tokens a line may ask for; an engine's `max_model_len` is far below.
MOST_OUTPUT_TOKENS = 1_000_000
#: The longest prompt that is made up for a line that gives only its length.
MOST_PROMPT_TOKENS = 1_000_000


class BadLine(msgspec.Struct, frozen=True):
    """A line that asks for nothing that could be run: its number, from 1, and why.

    `unit` is what is counted: a line, or an entry of a JSON list. `label` is the name it gives itself.
    """

    line: int
    reason: str
    unit: str = "line"
    label: str = ""

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.reason}"


Read = Iterator[PromptRequest | BadLine]


class WorkloadError(ValueError):
    """A workload that cannot be used; the message is one sentence for the user."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader of a file is told beside the file.

    Attributes:
        request: what a request is asked with, where its line does not say; the prompt is not used.
        max_tokens: output tokens of a request that does not say; None: it must say.
        seed: of prompts that are made up.
    """

    request: PromptRequest = PromptRequest(prompt="")
    max_tokens: int | None = None
    seed: int = 0


def lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, numbered from 1; a UTF-8 byte order mark is ignored."""
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if line.strip():
            yield number, line


def read_rows(data: bytes, make: Callable[[int, dict[str, str]], PromptRequest]) -> Read:
    """The requests of a CSV file with a header, and its bad rows, in order; the header is line 1.

    Args:
        make: a row, by column, with its line number, as a request; raises ValueError where it is none.
    """
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadLine(reader.line_num, f"not CSV ({error})")
            continue
        cells = {name: value or "" for name, value in row.items() if isinstance(name, str)}
        try:
            yield make(reader.line_num, cells)
        except ValueError as error:
            yield BadLine(reader.line_num, str(error))


def columns_of(data: bytes) -> Sequence[str]:
    """The columns a CSV header names, if the first line is one."""
    line = next((line for _, line in lines_of(data[:10_000])), b"")
    return [name.strip().strip('"') for name in line.decode("utf-8", "replace").split(",")]


def text_of(line: bytes) -> str:
    """A line as text.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start + 1})") from None


def object_of(line: bytes, form: str) -> dict[str, Any]:
    """The JSON object a line holds.

    Args:
        form: what it must be, for the message.

    Raises:
        ValueError: it holds none.
    """
    text_of(line)
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        if _has_half_a_pair(line):
            raise ValueError("a text in it is not valid Unicode (half of a surrogate pair)") from None
        raise ValueError(f"not JSON ({error}); each line must be {form}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object; each line must be {form}")
    return fields


def _has_half_a_pair(line: bytes) -> bool:
    """Whether a line is JSON but for half a character: an escape that Python's own reader lets by."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def text_in(value: Any, name: str) -> str:
    """A text that can be a prompt.

    Raises:
        ValueError: it is not a string, empty, or not Unicode.
    """
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string, not {shown(value)}")
    if not value:
        raise ValueError(f"`{name}` is empty")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"`{name}` is not valid Unicode (half of a surrogate pair)")
    return value


def count_in(value: Any, name: str, most: int = MOST_OUTPUT_TOKENS) -> int:
    """A number of tokens from 1 to `most`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"`{name}` must be a whole number, not {shown(value)}")
    if not 1 <= value <= most:
        raise ValueError(f"`{name}` must be from 1 to {most:,}, not {shown(value)}")
    return int(value)


def seconds_in(value: Any, name: str) -> float:
    """A time, 0 or more.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"`{name}` must be a number, 0 or more, not {shown(value)}")
    return float(value)


def number_in(row: dict[str, str], name: str) -> float | int | str:
    """A CSV cell as a number, or as it stands for a check to refuse.

    Raises:
        ValueError: it is empty.
    """
    cell = row.get(name, "").strip()
    if not cell:
        raise ValueError(f"`{name}` is missing")
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def label_in(value: Any, name: str = "custom_id") -> str:
    """The name a line gives its request.

    Raises:
        ValueError: it is neither text nor a number.
    """
    if not isinstance(value, str | int):
        raise ValueError(f"`{name}` must be a string, not {shown(value)}")
    return str(value)


def shown(value: Any) -> str:
    """A value for a message, cut if long."""
    is_odd = isinstance(value, float) and not math.isfinite(value)
    text = str(value) if is_odd else msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:39] + "…"
