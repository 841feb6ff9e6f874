"""`cbtui` and `python -m cbtui`: runs a command, and turns every failure into a sentence and a code.

0 well; 1 the command's own bad news (outputs differ, lines that could not be run); 2 it could not be
done; 130 Ctrl-C; 141 the reader of the output went away.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import typer

from cbtui.cli.app import app
from cbtui.cli.program import COMMANDS, LAUNCH, with_command
from cbtui.cli.vllm_options import split_arguments

#: What the command-line library raises for a bad option; its place differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and end it with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What an output's encoding lacks is written as an escape, rather than be the end of the program.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command.

    Args:
        arguments: without the program's name; none, or an option or a file first, is `launch`.

    Returns:
        The exit code.
    """
    arguments = with_command(arguments)
    try:
        defaults = _defaults() if arguments[0] == LAUNCH else {}
        arguments = split_arguments(arguments)
        return app(args=arguments, prog_name="cbtui", standalone_mode=False, default_map=defaults) or 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        _silence_output()
        return 141
    except _UsageError as error:
        hint = f" (cbtui {arguments[0]} --help)" if arguments[0] in COMMANDS else " (cbtui --help)"
        return _fail(error.format_message().rstrip(".") + hint)  # type: ignore[attr-defined]
    except Exception as error:
        return _fail_as(error)


def _defaults() -> dict[str, dict[str, object]]:
    """What the user's settings change in the options of `launch`; theme and keys are the screen's own."""
    from cbtui.settings import read_settings, settings_path

    settings = read_settings(settings_path())
    found: dict[str, object] = {
        name: getattr(settings, name)
        for name in ("speed", "slots", "budget", "mode", "max_tokens", "history", "stories")
        if getattr(settings, name) is not None
    }
    if settings.chat is not None:
        found["raw"] = not settings.chat
    return {LAUNCH: found}


def _fail_as(error: Exception) -> int:
    """Say what the program raises on purpose; anything else is a fault in it and keeps its traceback."""
    from cbtui.cli.console import CommandError
    from engine.runner import ModelLoadError, RunnerError

    if isinstance(error, ModelLoadError):
        hint = f"; try: {error.hint}" if error.hint else ""
        return _fail(f"the model cannot be loaded ({error.stage}): {error}{hint}")
    if isinstance(error, CommandError | RunnerError | ValueError):
        return _fail(str(error))
    raise error


def _fail(sentence: str) -> int:
    from cbtui.cli.console import complain

    complain(sentence)
    return 2


def _silence_output() -> None:
    """Nobody reads any more: what is still buffered must not fail at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
