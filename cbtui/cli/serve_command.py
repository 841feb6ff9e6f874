"""The command `cbtui serve` and its options; all others are those of `launch`, and are passed on to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cbtui.options import LaunchOptions

#: Lets options of `launch` through.
PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def serve(
    context: typer.Context,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Where; 0 is any free one.")
    ] = 8000,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; this machine only unless you say so.")
    ] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Let other machines in, if --host does. There is no password."),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST", help="A name this machine goes by for browsers; may be repeated."
        ),
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Open pages at most; each runs a model of its own.")
    ] = 2,
) -> int:
    """Show the screen in a browser. Takes the options of `launch`, too."""
    from cbtui.cli.console import CommandError
    from cbtui.serving.guard import guard_for, is_loopback

    try:
        from cbtui.serving.server import Serving
        from cbtui.serving.server import serve as serve_until_ended
    except ImportError as error:
        raise CommandError(
            f"serve needs the packages of the extra `serve` (pip install textual-serve aiohttp): {error}"
        ) from None
    if not is_loopback(host) and not allow_remote:
        raise CommandError(
            f"{host} can be reached from other machines, and whoever reaches it can use cbtui here: there is "
            "no password. Say --allow-remote if that is meant"
        )
    arguments = list(context.args)
    _check(context, arguments)
    if not is_loopback(host):
        print(
            "cbtui: anyone who can reach this port can use cbtui here; there is no password", file=sys.stderr
        )
    serving = Serving(
        command=[sys.executable, "-P", "-m", "cbtui", "launch", *arguments],
        host=host,
        port=port,
        guard=guard_for(host, name or ()),
        sessions=sessions,
    )
    try:
        return serve_until_ended(serving, _say_where)
    except OSError as error:
        raise CommandError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def _say_where(address: str) -> None:
    print(f"cbtui is at {address} (ctrl+c ends it)", flush=True)


def _check(context: typer.Context, arguments: list[str]) -> None:
    """See that `launch` takes these arguments, as if it were run now.

    Raises:
        CommandError, ValueError, a usage error: what it says of them.
    """
    from cbtui.cli.console import CommandError

    if "-" in arguments:
        raise CommandError("a page has no standard input: name a file of requests")
    assert context.parent is not None
    launch = context.parent.command.commands["launch"]  # type: ignore[attr-defined]
    with launch.make_context("launch", list(arguments), parent=context.parent, obj=_checked) as inner:
        launch.invoke(inner)


def _checked(options: LaunchOptions) -> int:
    """In the place of a screen: what only a screen at a terminal may be asked."""
    from cbtui.cli.console import CommandError

    if options.record is not None:
        raise CommandError("--record writes one file, and every page has a run of its own: not with serve")
    return 0
