"""`cbtui models …`: its commands and their options. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from cbtui.cli.model_options import HELP, Device, Dtype, Exact, Json, Threads

models = typer.Typer(help="The models there are, and whether one can be run.", context_settings=HELP)


@models.command("check")
def models_check(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A folder, a .gguf file or a Hub id (owner/name); default: SmolLM2-135M-Instruct.",
        ),
    ] = None,
    *,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    exact: Exact = False,
    as_json: Json = False,
) -> int:
    """Load a model, hold mixed steps against each sequence alone, and print what was found.

    Exit code 2, and the reason in one sentence, where it cannot be run.
    """
    from cbtui.cli.model_commands import check_model
    from cbtui.options import runner_spec

    return check_model(runner_spec(name, device, dtype, threads, exact=exact), as_json=as_json)


@models.command("list")
def models_list(*, as_json: Json = False) -> int:
    """The default model: whether it is here, how large it is, where it is."""
    from cbtui.cli.model_commands import list_models

    return list_models(as_json=as_json)


@models.command("fetch")
def models_fetch() -> int:
    """Fetch the default model and convert it, once; later starts find it ready."""
    from cbtui.cli.model_commands import fetch_model

    return fetch_model()
