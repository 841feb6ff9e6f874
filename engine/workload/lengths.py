"""Traces that give lengths and arrival times but no text: Azure, BurstGPT, Mooncake, Vidur.

Their prompts are made up once a tokenizer is there (`engine.live.prompting`); the same seed gives the same
prompts. Outputs run to their stated length whatever end-of-sequence says.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.live.commands import MadeUp, PromptRequest
from engine.workload.lines import (
    MOST_PROMPT_TOKENS,
    Asked,
    BadLine,
    Read,
    count_in,
    label_in,
    lines_of,
    number_in,
    object_of,
    read_rows,
    seconds_in,
    shown,
)

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
VIDUR_COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
MOONCAKE_FORM = (
    'an object such as {"timestamp": 135, "input_length": 608, "output_length": 8, "hash_ids": []}'
)
#: Prompt tokens that one of Mooncake's `hash_ids` stands for.
HASHED_TOKENS = 512


def read_azure(data: bytes, asked: Asked) -> Read:
    """An Azure LLM inference trace: times of day, counted here from the first row's."""
    first: datetime | None = None

    def make(number: int, row: dict[str, str]) -> PromptRequest:
        nonlocal first
        at = _moment(row.get("TIMESTAMP", ""))
        first = first or at
        prompt, output = (number_in(row, name) for name in AZURE_COLUMNS[1:])
        return _request(
            asked,
            number,
            max(0.0, (at - first).total_seconds()),
            count_in(prompt, "ContextTokens", MOST_PROMPT_TOKENS),
            count_in(output, "GeneratedTokens"),
        )

    return read_rows(data, make)


def read_burstgpt(data: bytes, asked: Asked) -> Read:
    """A BurstGPT trace: seconds. A request that got no response (it failed) is a bad line."""
    return _read_columns(data, asked, *BURSTGPT_COLUMNS)


def read_vidur(data: bytes, asked: Asked) -> Read:
    """A Vidur trace: seconds."""
    return _read_columns(data, asked, *VIDUR_COLUMNS)


def read_mooncake(data: bytes, asked: Asked) -> Read:
    """A Mooncake trace: milliseconds, and ids of the prompt's blocks, equal where prefixes are."""
    for number, line in lines_of(data):
        try:
            fields = object_of(line, MOONCAKE_FORM)
            for name in ("input_length", "output_length"):
                if name not in fields:
                    raise ValueError(f"`{name}` is missing; each line must be {MOONCAKE_FORM}")
            yield _request(
                asked,
                number,
                seconds_in(fields.get("timestamp", 0), "timestamp") / 1000,
                count_in(fields["input_length"], "input_length", MOST_PROMPT_TOKENS),
                count_in(fields["output_length"], "output_length"),
                hash_ids=_hash_ids(fields.get("hash_ids", [])),
                label=label_in(fields.get("custom_id", "")),
            )
        except ValueError as error:
            yield BadLine(number, str(error))


def _read_columns(data: bytes, asked: Asked, time: str, prompt: str, output: str) -> Read:
    def make(number: int, row: dict[str, str]) -> PromptRequest:
        return _request(
            asked,
            number,
            seconds_in(number_in(row, time), time),
            count_in(number_in(row, prompt), prompt, MOST_PROMPT_TOKENS),
            count_in(number_in(row, output), output),
        )

    return read_rows(data, make)


def _request(
    asked: Asked,
    number: int,
    arrives_s: float,
    num_tokens: int,
    max_tokens: int,
    *,
    hash_ids: tuple[int, ...] = (),
    label: str = "",
) -> PromptRequest:
    return msgspec.structs.replace(
        asked.request,
        prompt="",
        made_up=MadeUp(num_tokens, f"{asked.seed}/{number}", f"{asked.seed}", hash_ids, HASHED_TOKENS),
        verbatim=True,
        max_tokens=max_tokens,
        ignore_eos=True,
        arrives_s=arrives_s,
        label=label,
    )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"`TIMESTAMP` must be a date and time, not {shown(text)}") from None


def _hash_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise ValueError(f"`hash_ids` must be a list of whole numbers, not {shown(value)}")
    return tuple(value)
