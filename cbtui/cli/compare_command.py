"""The command `cbtui compare` and its options; what it does is in `compare.py`, imported once it is asked
for.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cbtui.cli.engine_options import SAMPLING, EngineOptions, MaxTokens, Stop
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.metrics_option import Metrics
from cbtui.cli.model_options import Json, Model, RunsOn


def compare(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help=FORMATS
            + " Default: the tutorial's six requests. Or traces that --record wrote: they are compared "
            "as they are, without a model.",
        ),
    ] = None,
    *,
    modes: Annotated[
        str,
        typer.Option(
            metavar="MODE,…",
            help="Which modes, in which order. Default: static,continuous-padded,continuous.",
            show_default=False,
        ),
    ] = "static,continuous-padded,continuous",
    chat: Annotated[
        bool,
        typer.Option(
            "--chat/--raw",
            help="Through the model's chat template, or (the default) as it stands.",
            show_default=False,
        ),
    ] = False,
    as_json: Json = False,
    record: Record = None,
    metrics: Metrics = None,
    limit: Limit = None,
    arrivals: Arrivals = None,
    max_tokens: MaxTokens = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--no-ignore-eos",
            help="Go on past the model's end-of-sequence token. "
            "Default: the built-in requests do, those of a FILE stop.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    stop: Stop = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Hold each output against the same request run alone, afterwards."
        ),
    ] = True,
    engine: EngineOptions,
    model: Model = None,
    runs_on: RunsOn,
) -> int:
    """Run the same requests in each mode, and say what it cost.

    Steps, waste, speed, timelines, and whether outputs are identical: exit code 1 if they are not, or are
    not what the model gives a request alone (a near tie in floating point apart).
    """
    from cbtui.cli.compare import CompareOptions, run_compare
    from cbtui.cli.compare_traces import are_traces, compare_traces
    from cbtui.cli.sources import FileOptions

    if files and are_traces(files):
        return compare_traces(files, as_json=as_json)
    file = files[0] if files else None
    names = tuple(_modes(modes))
    options = CompareOptions(
        runner=runs_on.spec(model),
        config=engine.config(names[0]),
        modes=names,
        file=None
        if file is None
        else FileOptions(
            source=file, max_tokens=max_tokens, limit=limit, arrivals=checked_arrivals(arrivals)
        ),
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        stop=tuple(stop or ()),
        chat=chat,
        as_json=as_json,
        record=trace_path(record),
        metrics=metrics,
        verify=verify,
    )
    return run_compare(options)


def _modes(names: str) -> list[str]:
    from engine.scheduling.modes import mode_named

    return list(dict.fromkeys(mode_named(name.strip()).name for name in names.split(",")))
