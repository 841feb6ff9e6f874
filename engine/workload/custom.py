"""JSON Lines with `prompt` and `output_tokens`: the `custom` dataset of serving benchmarks.

    {"prompt": "The capital of France is", "output_tokens": 6}
    {"custom_id": "weather", "prompt": "Today's weather is so", "output_tokens": 50, "priority": -1}

A line may also say `arrival_s`, seconds from the file's beginning.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.live.commands import PromptRequest
from engine.workload.lines import (
    Asked,
    BadLine,
    Read,
    count_in,
    label_in,
    lines_of,
    object_of,
    seconds_in,
    shown,
    text_in,
)

#: The largest `priority` either way; larger ones would outlive any ageing.
MOST_PRIORITY = 1_000
FORM = 'an object such as {"prompt": "Once upon a time", "output_tokens": 30}'


def read(data: bytes, asked: Asked) -> Read:
    """The requests of a file and its bad lines, in order. Blank lines are skipped."""
    for number, line in lines_of(data):
        try:
            yield _request(object_of(line, FORM), asked)
        except ValueError as error:
            yield BadLine(number, str(error))


def _request(fields: dict[str, Any], asked: Asked) -> PromptRequest:
    if "prompt" not in fields:
        raise ValueError(f"`prompt` is missing; each line must be {FORM}")
    return msgspec.structs.replace(
        asked.request,
        prompt=text_in(fields["prompt"], "prompt"),
        max_tokens=_output_tokens(fields.get("output_tokens"), asked.max_tokens),
        label=label_in(fields.get("custom_id", fields.get("label", ""))),
        priority=_priority(fields.get("priority", 0)),
        arrives_s=seconds_in(fields.get("arrival_s", 0), "arrival_s"),
    )


def _output_tokens(value: Any, default: int | None) -> int:
    if value is not None:
        return count_in(value, "output_tokens")
    if default is None:
        raise ValueError("`output_tokens` is missing (or give --max-tokens)")
    return default


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_PRIORITY:
        raise ValueError(
            f"`priority` must be a whole number from -{MOST_PRIORITY:,} to {MOST_PRIORITY:,} (lower enters "
            f"earlier), not {shown(value)}"
        )
    return value
