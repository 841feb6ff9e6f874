"""The command `cbtui run` and its options; what it does is in `run.py`, imported once it is asked for."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cbtui.cli.engine_options import SAMPLING, EngineOptions, MaxTokens, Mode, Raw, SamplingOptions, Verify
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.metrics_option import Metrics
from cbtui.cli.model_options import Json, Model, RunsOn


def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help=FORMATS,
        ),
    ] = None,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the answers as OpenAI batch output; - is standard output.",
        ),
    ] = None,
    as_json: Json = False,
    raw: Raw = False,
    record: Record = None,
    metrics: Metrics = None,
    limit: Limit = None,
    arrivals: Arrivals = None,
    max_tokens: MaxTokens = None,
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos", help="Go on past end-of-sequence tokens.", rich_help_panel=SAMPLING),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1 << 62,
            metavar="N",
            help="Of the first request; the next ones count up.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    sampling: SamplingOptions,
    mode: Mode = "continuous",
    verify: Verify = False,
    engine: EngineOptions,
    model: Model = None,
    runs_on: RunsOn,
) -> int:
    """Run prompts; each result is printed as it ends.

    Bad lines are named, the others run; exit code 1 then.
    """
    from cbtui.cli.console import CommandError
    from cbtui.cli.run import RunOptions, run_prompts
    from cbtui.cli.sources import FileOptions
    from cbtui.options import DEFAULT_MAX_TOKENS

    config = engine.config(mode)
    if file is None and sys.stdin.isatty():
        raise CommandError("no prompts: name a file, or pipe them in, one a line")
    options = RunOptions(
        runner=runs_on.spec(model),
        config=config,
        file=FileOptions(
            source="-" if file is None else file,
            max_tokens=max_tokens,
            limit=limit,
            arrivals=checked_arrivals(arrivals),
        ),
        default_max_tokens=DEFAULT_MAX_TOKENS,
        asked=sampling.asked(ignore_eos=ignore_eos),
        seed=seed,
        raw=raw,
        as_json=as_json,
        output=output,
        record=trace_path(record),
        metrics=metrics,
        verify=verify,
    )
    return run_prompts(options)
