"""The command `cbtui run` and its options; what it does is in `run.py`, imported once it is asked for."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cbtui.cli.engine_options import (
    BlockSize,
    Budget,
    MaxModelLen,
    MaxTokens,
    Mode,
    NumBlocks,
    Policy,
    PrefixCaching,
    Slots,
    Stop,
    Temperature,
    TopK,
    TopP,
    engine_config,
)
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.model_options import Device, Dtype, Exact, Json, Model, Threads


def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help=FORMATS,
        ),
    ] = None,
    *,
    mode: Mode = "continuous",
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    stop: Stop = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the first request; the next ones count up.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue prompts; no chat template.")] = False,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--no-ignore-eos", help="Go on past end-of-sequence tokens.")
    ] = False,
    as_json: Json = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the answers as OpenAI batch output; - is standard output.",
        ),
    ] = None,
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
    """Run prompts and print each result as it ends. Bad lines are named, the others run; exit code 1 then."""
    from cbtui.cli.console import CommandError
    from cbtui.cli.run import RunOptions, run_prompts
    from cbtui.cli.sources import FileOptions
    from cbtui.options import DEFAULT_MAX_TOKENS, runner_spec
    from engine.live.commands import PromptRequest

    config = engine_config(mode, slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching)
    if file is None and sys.stdin.isatty():
        raise CommandError("no prompts: name a file, or pipe them in, one a line")
    asked = PromptRequest(
        prompt="",
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    asked.sampling(lambda: 0)  # a value out of range is said before anything is loaded
    options = RunOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=config,
        file=FileOptions(
            source=file or "-", max_tokens=max_tokens, limit=limit, arrivals=checked_arrivals(arrivals)
        ),
        default_max_tokens=DEFAULT_MAX_TOKENS,
        asked=asked,
        seed=seed,
        raw=raw,
        as_json=as_json,
        output=output,
        record=trace_path(record),
    )
    return run_prompts(options)
