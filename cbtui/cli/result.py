"""What a headless run says of a finished request. Plain data."""

from __future__ import annotations

import msgspec


class ResultLine(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request, as `--json` prints it. Seconds are engine seconds, from arrival.

    `index` counts the requests from 0, `finish_reason` is stop, length, error or ignored.
    """

    index: int
    label: str
    prompt: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    text: str
    token_ids: tuple[int, ...]
    ttft_s: float | None
    e2e_s: float | None
    error: str
