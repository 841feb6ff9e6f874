"""Options that say which requests of a file run and when, for every command that takes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

PANEL = "Request file"
FORMATS = (
    "JSON Lines with `prompt` and `output_tokens`, OpenAI batch, ShareGPT, an Azure, BurstGPT, Mooncake or "
    "Vidur trace, or a prompt a line; - is standard input."
)

#: How slow and how fast a file's time may pass.
_ARRIVALS = (0.001, 1e6)

Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help="The first N requests only.", rich_help_panel=PANEL),
]
Arrivals = Annotated[
    float | None,
    typer.Option(
        "--arrivals",
        metavar="FACTOR",
        help="Let requests arrive when the file says, FACTOR times as fast (1 is as recorded). "
        "Default: all at once.",
        rich_help_panel=PANEL,
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Write a trace of every step as it happens, for `cbtui replay`; .gz and .zst are compressed.",
    ),
]


def trace_path(file: str | None) -> Path | None:
    """Where a trace goes."""
    return None if file is None else Path(os.path.expanduser(file))


def checked_arrivals(factor: float | None) -> float | None:
    """The factor, if it is one.

    Raises:
        ValueError: time cannot pass so fast.
    """
    least, most = _ARRIVALS
    if factor is not None and not least <= factor <= most:
        raise ValueError(f"--arrivals must be a number from {least:g} to {most:,.0f}, not {factor:g}")
    return factor
