"""`cbtui models …`: its commands and their options. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from cbtui.cli.help import HELP, Command, Group
from cbtui.cli.model_options import Json, RunsOn
from cbtui.cli.option_groups import with_groups

models = typer.Typer(
    help="The models there are, and whether one can be run.", cls=Group, context_settings=HELP
)


@models.command("check", cls=Command)
@with_groups
def models_check(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A folder, a .gguf file or a Hub id (owner/name); default: SmolLM2-135M-Instruct.",
        ),
    ] = None,
    *,
    as_json: Json = False,
    runs_on: RunsOn,
) -> int:
    """Load a model and say whether it can be run faithfully.

    Mixed steps are held against each sequence alone.

    Exit code 2, and the reason in one sentence, where it cannot be run.
    """
    from cbtui.cli.model_commands import check_model

    return check_model(runs_on.spec(name), as_json=as_json)


@models.command("list", cls=Command)
def models_list(*, as_json: Json = False) -> int:
    """The default model: whether it is here, its size, its folder."""
    from cbtui.cli.model_commands import list_models

    return list_models(as_json=as_json)


@models.command("fetch", cls=Command)
def models_fetch() -> int:
    """Fetch the default model and convert it, once.

    Later starts find it ready.
    """
    from cbtui.cli.model_commands import fetch_model

    return fetch_model()
