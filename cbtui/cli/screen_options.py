"""What the commands that open the screen need of the terminal and of their options. Imports nothing heavy."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cbtui.cli.completions import themes
from cbtui.cli.engine_options import SAMPLING
from cbtui.serving.leash import is_served

Speed = Annotated[str, typer.Option(metavar="N|max", help="Steps a second at most, or as fast as it can.")]
Paused = Annotated[bool, typer.Option("--paused", help="Start paused.")]
Theme = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="dark, light or high-contrast.", autocompletion=themes),
]
History = Annotated[
    int,
    typer.Option(min=10, max=10_000_000, metavar="N", help="Steps kept to look back at; about 7 KB each."),
]
Stories = Annotated[
    int,
    typer.Option(
        min=0, max=10_000_000, metavar="N", help="Finished requests kept, with their texts and times."
    ),
]
TypedMaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2_147_483_647,
        metavar="N",
        help="Output tokens of a typed prompt (64), and of a FILE's at most.",
        rich_help_panel=SAMPLING,
    ),
]


def need_terminal(*, reads_stdin: bool = False) -> None:
    """The screen draws on a terminal.

    Args:
        reads_stdin: requests come from standard input; keys are read from the terminal itself.

    Raises:
        CommandError: there is none.
    """
    from cbtui.cli.console import CommandError, is_dumb

    if is_served():
        return
    if not (sys.stdout.isatty() and (reads_stdin or sys.stdin.isatty())) or is_dumb():
        raise CommandError(
            "the screen needs a terminal; without one use `cbtui compare` (the tutorial's requests in "
            "every mode) or `cbtui run` (your prompts)"
        )


def theme_named(name: str | None) -> str | None:
    """A theme's name, checked.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    from cbtui.settings import THEME_NAMES

    if name is not None and name not in THEME_NAMES:
        raise ValueError(f"no theme {name!r}; there are {', '.join(THEME_NAMES)}")
    return name


def steps_per_s(speed: str) -> float | None:
    """`--speed` as a number; None is `max`.

    Raises:
        ValueError: it is neither.
    """
    from cbtui.settings import LEAST_SPEED, MOST_SPEED

    if speed.strip().lower() == "max":
        return None
    try:
        value = float(speed)
    except ValueError:
        value = 0.0
    if not LEAST_SPEED <= value <= MOST_SPEED:
        raise ValueError(
            f"--speed must be a number of steps a second from {LEAST_SPEED:g} to {MOST_SPEED:,.0f}, or max, "
            f"not {speed}"
        )
    return value
