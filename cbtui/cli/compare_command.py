"""The command `cbtui compare` and its options; what it does is in `compare.py`, imported once it is asked
for.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cbtui.cli.engine_options import (
    BlockSize,
    Budget,
    MaxModelLen,
    MaxTokens,
    NumBlocks,
    Policy,
    PrefixCaching,
    Slots,
    Stop,
    engine_config,
)
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.model_options import Device, Dtype, Exact, Json, Model, Threads


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
        str, typer.Option(metavar="MODE,…", help="Which modes, in which order.")
    ] = "static,continuous-padded,continuous",
    max_tokens: MaxTokens = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--no-ignore-eos",
            help="Go on past the model's end-of-sequence token. "
            "Default: the built-in requests do, those of a FILE stop.",
        ),
    ] = None,
    stop: Stop = None,
    chat: Annotated[
        bool, typer.Option("--chat/--raw", help="Through the model's chat template, or as it stands.")
    ] = False,
    as_json: Json = False,
    limit: Limit = None,
    arrivals: Arrivals = None,
    record: Record = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    exact: Exact = False,
    slots: Slots = 3,
    budget: Budget = 2048,
    max_model_len: MaxModelLen = 2048,
    num_blocks: NumBlocks = 512,
    block_size: BlockSize = 16,
    policy: Policy = "fcfs",
    prefix_caching: PrefixCaching = False,
) -> int:
    """Run the same requests in each mode: steps, waste, speed, timelines, and whether outputs are identical.

    Exit code 1 if they are not (a near tie in floating point apart).
    """
    from cbtui.cli.compare import CompareOptions, run_compare
    from cbtui.cli.compare_traces import are_traces, compare_traces
    from cbtui.cli.sources import FileOptions
    from cbtui.options import runner_spec

    if files and are_traces(files):
        return compare_traces(files, as_json=as_json)
    file = files[0] if files else None
    names = tuple(_modes(modes))
    options = CompareOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=engine_config(
            names[0], slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching
        ),
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
    )
    return run_compare(options)


def _modes(names: str) -> list[str]:
    from engine.scheduling.modes import mode_named

    return list(dict.fromkeys(mode_named(name.strip()).name for name in names.split(",")))
