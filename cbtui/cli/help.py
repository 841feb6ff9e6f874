"""How `--help` looks: what every command's help leaves out, how commands are grouped, and the exit codes."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

#: Of every command and group of commands.
HELP = {"help_option_names": ["-h", "--help"]}
#: Panels of the list of commands.
SCREEN = "On the screen"
HEADLESS = "Without a screen"
MACHINE = "About this machine"
EXIT_CODES = (
    "Exit codes: 0 well; 1 bad news (outputs differ, lines that could not be run, something doctor found); "
    "2 it could not be done; 130 ctrl+c; 141 the reader of the output went away."
)


def _nothing(*_: object, **__: object) -> None:
    return None


def _without_types(parameters: list[Any]) -> list[Any]:
    """Parameters whose help shows what the user calls a value (its metavar), and no type of Python's."""
    for parameter in parameters:
        if parameter.param_type_name == "argument" or getattr(parameter, "is_flag", False):
            parameter.display_type_rich = _nothing
        parameter._get_number_range_help_str = _nothing
        if parameter.name == "help":
            parameter.help = "Show this text."
    return parameters


class Command(TyperCommand):
    """A command whose help names values, not types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands, the same."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))
