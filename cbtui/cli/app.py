"""The commands and their options. Imports nothing heavy: `--help` must come at once.

Every option is checked here, so that a mistake is one sentence before any model is loaded.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui import __version__
from cbtui.cli.bench import bench
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
)
from cbtui.cli.model_options import HELP, Device, Dtype, Exact, Json, Model, Threads
from cbtui.cli.models_app import models
from cbtui.cli.settings_command import settings

if TYPE_CHECKING:
    from engine.config import EngineConfig

COMMANDS = ("launch", "compare", "run", "models", "race", "lesson", "bench", "settings")

app = typer.Typer(
    name="cbtui",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    help=(
        "A microscope for LLM serving: a real continuous-batching engine, every forward pass on your "
        "terminal. `cbtui` alone is `cbtui launch`, and takes its options."
    ),
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"cbtui {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def launch(
    *,
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
    mode: Mode = "continuous",
    speed: Annotated[
        str, typer.Option(metavar="N|max", help="Steps a second at most, or as fast as it can.")
    ] = "8",
    paused: Annotated[bool, typer.Option("--paused", help="Start paused, to type prompts first.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Begin with the tutorial's six requests.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Continue prompts; no chat template.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens of a typed prompt.")] = 64,
    history: Annotated[
        int, typer.Option(min=10, metavar="N", help="Steps kept to look back at; about 7 KB each.")
    ] = 10_000,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    stop: Stop = None,
    theme: Annotated[str | None, typer.Option(metavar="NAME", help="dark, light or high-contrast.")] = None,
) -> int:
    """Open the screen. Defaults can be changed in a file: `cbtui settings` says which and how."""
    from cbtui.options import LaunchOptions, runner_spec
    from engine.commands import PromptRequest

    _need_terminal()
    asked = PromptRequest(
        prompt="", temperature=temperature, top_k=top_k, top_p=top_p, stop=tuple(stop or ())
    )
    asked.sampling(lambda: 0)  # a value out of range is said before anything is loaded
    options = LaunchOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=_config(mode, slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching),
        speed=_steps_per_s(speed),
        paused=paused,
        demo=demo,
        raw=raw,
        max_tokens=max_tokens,
        history=history,
        asked=asked,
        theme=_theme(theme),
    )
    from cbtui.app import run_app

    return run_app(options)


@app.command()
def race(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON Lines with `prompt` and `output_tokens`, or a prompt a line. Default: the tutorial's "
            "six requests.",
        ),
    ] = None,
    *,
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
    max_tokens: MaxTokens = None,
) -> int:
    """Open the screen on a race: the same requests static and continuous, step by step in turn."""
    from cbtui.cli.sources import requests_of
    from cbtui.options import DEFAULT_MAX_TOKENS, LaunchOptions, runner_spec
    from engine.workload import tutorial_workload

    _need_terminal()
    requests = tutorial_workload() if file is None else requests_of(file, max_tokens, DEFAULT_MAX_TOKENS)
    from cbtui.app import run_app

    return run_app(
        LaunchOptions(
            runner=runner_spec(model, device, dtype, threads, exact=exact),
            config=_config(
                "continuous", slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching
            ),
            race=tuple(requests),
        )
    )


@app.command()
def lesson(
    number: Annotated[int | None, typer.Argument(metavar="N", help="Which one; none lists them.")] = None,
) -> int:
    """Six short guided scenes on a toy model: what batching does, and why."""
    from cbtui.cli.console import CommandError
    from cbtui.lessons.scenes import LESSONS

    if number is None:
        for place, one in enumerate(LESSONS, 1):
            typer.echo(f"{place}  {one.title}\n   {one.question}")
        return 0
    if not 1 <= number <= len(LESSONS):
        raise CommandError(f"there are lessons 1 to {len(LESSONS)}; `cbtui lesson` lists them")
    _need_terminal()
    from cbtui.app import run_lesson

    return run_lesson(number)


def _need_terminal() -> None:
    """The screen draws on a terminal.

    Raises:
        CommandError: there is none.
    """
    from cbtui.cli.console import CommandError, is_dumb

    if not (sys.stdout.isatty() and sys.stdin.isatty()) or is_dumb():
        raise CommandError(
            "the screen needs a terminal; without one use `cbtui compare` (the tutorial's requests in "
            "every mode) or `cbtui run` (your prompts)"
        )


@app.command()
def compare(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON Lines with `prompt` and `output_tokens`; - is standard input. "
            "Default: the tutorial's six requests.",
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
    from cbtui.options import runner_spec

    names = tuple(_modes(modes))
    options = CompareOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=_config(
            names[0], slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching
        ),
        modes=names,
        source=file,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        stop=tuple(stop or ()),
        chat=chat,
        as_json=as_json,
    )
    return run_compare(options)


@app.command()
def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A prompt a line, or JSON Lines with `prompt` and `output_tokens`; - or a pipe is "
            "standard input.",
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
    from cbtui.options import DEFAULT_MAX_TOKENS, runner_spec

    config = _config(mode, slots, budget, max_model_len, num_blocks, block_size, policy, prefix_caching)
    if file is None and sys.stdin.isatty():
        raise CommandError("no prompts: name a file, or pipe them in, one a line")
    options = RunOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=config,
        source=file or "-",
        max_tokens=max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=tuple(stop or ()),
        seed=seed,
        raw=raw,
        ignore_eos=ignore_eos,
        as_json=as_json,
    )
    return run_prompts(options)


app.command()(bench)

app.command()(settings)
app.add_typer(models, name="models")


def _config(
    mode: str,
    slots: int,
    budget: int,
    max_model_len: int,
    num_blocks: int,
    block_size: int,
    policy: str,
    prefix_caching: bool,
) -> EngineConfig:
    from engine.config import EngineConfig
    from engine.scheduling.modes import mode_named
    from engine.scheduling.policies import policy_named

    return EngineConfig(
        mode=mode_named(mode).name,
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
        policy=policy_named(policy).name,
        prefix_caching=prefix_caching,
    )


def _theme(name: str | None) -> str | None:
    """A theme's name, checked.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    from cbtui.settings import THEME_NAMES

    if name is not None and name not in THEME_NAMES:
        raise ValueError(f"no theme {name!r}; there are {', '.join(THEME_NAMES)}")
    return name


def _modes(names: str) -> list[str]:
    from engine.scheduling.modes import mode_named

    return list(dict.fromkeys(mode_named(name.strip()).name for name in names.split(",")))


def _steps_per_s(speed: str) -> float | None:
    """`--speed` as a number; None is `max`.

    Raises:
        ValueError: it is neither.
    """
    if speed.strip().lower() == "max":
        return None
    try:
        value = float(speed)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"--speed must be a number above 0, or max, not {speed}")
    return value
