"""The program itself: what is called without a command is `launch`, also where the shell completes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cbtui.cli.help import Group

LAUNCH = "launch"
COMMANDS = (
    LAUNCH,
    "compare",
    "run",
    "replay",
    "export",
    "attach",
    "models",
    "race",
    "lesson",
    "serve",
    "bench",
    "settings",
    "doctor",
)
#: Options of the program itself; any other first argument that is an option is one of `launch`.
_OWN_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with `launch` before them where they name no command: none, an option or a file first.

    What looks like a file's name is one, also where there is none: that is what is then said of it.
    """
    if not arguments or _belongs_to_launch(arguments[0]):
        return [LAUNCH, *arguments]
    return list(arguments)


def _belongs_to_launch(first: str) -> bool:
    if first.startswith("-"):
        return first not in _OWN_OPTIONS
    return first not in COMMANDS and ("." in first or os.sep in first or os.path.isfile(first))


class Program(Group):
    """The group of all commands, completed as it is run."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """While the shell completes, what has been typed so far is parsed here without having been run."""
        is_completing = extra.get("resilient_parsing", False)
        return super().make_context(
            info_name, with_command(args) if args and is_completing else args, parent, **extra
        )

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """With nothing typed yet but the beginning of an option, also those of `launch`."""
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return found
        launch = self.commands[LAUNCH]
        with launch.make_context(LAUNCH, [], ctx, resilient_parsing=True) as inner:
            more = launch.shell_complete(inner, incomplete)
        own = {one.value for one in found}
        return [*found, *(one for one in more if one.value not in own)]
