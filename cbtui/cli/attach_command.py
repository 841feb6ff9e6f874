"""The command `cbtui attach` and its options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui.cli.engine_options import Raw, SamplingOptions
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.screen_options import History, Paused, Stories, Theme, TypedMaxTokens

if TYPE_CHECKING:
    from engine.attach.address import Key


def _print_line(asked: bool) -> None:
    from engine.attach.vllm_command import line_to_use

    if asked:
        typer.echo(line_to_use())
        raise typer.Exit


VllmLine = Annotated[
    bool,
    typer.Option(
        "--vllm-line",
        callback=_print_line,
        is_eager=True,
        help="Print the line that starts a vLLM to be followed step by step.",
    ),
]


def attach(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="host:port, http://…, https://… or unix:PATH of a server that runs: llama.cpp or vLLM.",
        ),
    ],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Requests to send to it: " + FORMATS)
    ] = None,
    *,
    paused: Paused = False,
    ask_key: Annotated[
        bool, typer.Option("--ask-key", help="Ask for an API key. Default: $CBTUI_API_KEY, $OPENAI_API_KEY.")
    ] = False,
    raw: Raw = False,
    record: Record = None,
    history: History = 10_000,
    stories: Stories = 5_000,
    theme: Theme = None,
    vllm_line: VllmLine = False,
    limit: Limit = None,
    arrivals: Arrivals = None,
    max_tokens: TypedMaxTokens = None,
    sampling: SamplingOptions,
) -> int:
    """Watch a server that runs elsewhere; it stays as it is.

    An API key is taken from the environment or asked for, never from the command line.
    """
    from cbtui.cli.screen_files import screen_workload, with_bad
    from cbtui.cli.screen_options import need_terminal, theme_named
    from cbtui.options import DEFAULT_MAX_TOKENS, LaunchOptions
    from engine.attach.address import read_address

    if os.path.isfile(os.path.expanduser(url)):
        raise ValueError(
            f"{url} is a file, and attach wants a server's address: cbtui replay {url} opens a recording"
        )
    address, asked, colours = read_address(url), sampling.asked(), theme_named(theme)
    factor, trace = checked_arrivals(arrivals), trace_path(record)
    need_terminal(reads_stdin=file == "-")
    workload = screen_workload(file, max_tokens, limit, asked)
    options = LaunchOptions(
        attach=address,
        key=_asked_key() if ask_key else None,
        speed=None,
        paused=paused,
        raw=raw,
        max_tokens=max_tokens or DEFAULT_MAX_TOKENS,
        history=history,
        stories=stories,
        asked=asked,
        requests=workload.requests if workload else (),
        arrivals=factor,
        record=trace,
        theme=colours,
    )
    from cbtui.opening import run_app

    return with_bad(run_app(options), workload)


def _asked_key() -> Key:
    """A key typed where nobody sees it.

    Raises:
        ValueError: nothing was typed.
    """
    from getpass import getpass

    from engine.attach.address import Key

    secret = getpass("API key (it is not shown): ").strip()
    if not secret:
        raise ValueError("no key was typed")
    return Key(secret)
