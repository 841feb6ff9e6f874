"""The command `cbtui replay` and its options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cbtui.cli.screen_options import Paused, Speed, Theme

#: Records kept to look back at: a recording is there to be looked at as a whole.
_HISTORY = 1_000_000


def replay(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A trace of --record, or a recording vLLM's file."),
    ],
    *,
    speed: Speed = "8",
    paused: Paused = False,
    at: Annotated[
        str | None,
        typer.Option(metavar="STEP|end", help="Begin paused, with the steps up to this one shown."),
    ] = None,
    theme: Theme = None,
) -> int:
    """Show a recorded trace in the same screen, without a model."""
    from cbtui.cli.screen_options import need_terminal, steps_per_s, theme_named
    from cbtui.options import LaunchOptions
    from engine.attach.recordings import opened

    most_s, upto, colours = steps_per_s(speed), _step(at), theme_named(theme)
    path = Path(os.path.expanduser(file))
    with opened(path):
        pass  # what is no trace is said before the screen opens
    need_terminal()
    options = LaunchOptions(
        speed=most_s,
        paused=paused or at is not None,
        history=_HISTORY,
        replay=path,
        replay_upto=upto,
        theme=colours,
    )
    from cbtui.opening import run_app

    return run_app(options)


def _step(at: str | None) -> float:
    """`--at` as a number of steps.

    Raises:
        ValueError: it is neither a number nor `end`.
    """
    if at is None:
        return 0
    if at == "end":
        return float("inf")
    if not (at.isdecimal() and len(at) <= 12):
        raise ValueError(f"--at must be the number of a step, or end, not {at}")
    return int(at)
