"""The commands and their options. Imports nothing heavy: `--help` must come at once.

Every option is checked here, so that a mistake is one sentence before any model is loaded.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui import __version__
from cbtui.cli.bench import bench
from cbtui.cli.model_options import Device, Dtype, Exact, Json, Model, Threads

if TYPE_CHECKING:
    from engine.config import EngineConfig

COMMANDS = ("launch", "compare", "run", "models", "race", "lesson", "bench")

app = typer.Typer(
    name="cbtui",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "A microscope for LLM serving: a real continuous-batching engine, every forward pass on your "
        "terminal. `cbtui` alone is `cbtui launch`, and takes its options."
    ),
)

_LIMITS = "Engine limits"
Slots = Annotated[
    int,
    typer.Option(help="How many requests run at once (max_num_seqs).", rich_help_panel=_LIMITS),
]
Budget = Annotated[
    int,
    typer.Option(
        help="Token positions in one step at most (max_num_batched_tokens).", rich_help_panel=_LIMITS
    ),
]
MaxModelLen = Annotated[
    int,
    typer.Option(help="Longest prompt + output, tokens; the model's if less.", rich_help_panel=_LIMITS),
]
NumBlocks = Annotated[int, typer.Option(help="KV blocks.", rich_help_panel=_LIMITS)]
BlockSize = Annotated[int, typer.Option(help="Tokens in a KV block.", rich_help_panel=_LIMITS)]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Output tokens of a request at most.")]


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
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="static, continuous-padded or continuous.")
    ] = "continuous",
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
) -> int:
    """Open the screen."""
    from cbtui.options import LaunchOptions, runner_spec

    _need_terminal()

    options = LaunchOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=_config(mode, slots, budget, max_model_len, num_blocks, block_size),
        speed=_steps_per_s(speed),
        paused=paused,
        demo=demo,
        raw=raw,
        max_tokens=max_tokens,
        history=history,
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
            config=_config("continuous", slots, budget, max_model_len, num_blocks, block_size),
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
) -> int:
    """Run the same requests in each mode: steps, waste, speed, timelines, and whether outputs are identical.

    Exit code 1 if they are not (a near tie in floating point apart).
    """
    from cbtui.cli.compare import CompareOptions, run_compare
    from cbtui.options import runner_spec

    names = tuple(_modes(modes))
    options = CompareOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=_config(names[0], slots, budget, max_model_len, num_blocks, block_size),
        modes=names,
        source=file,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
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
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="static, continuous-padded or continuous.")
    ] = "continuous",
    max_tokens: MaxTokens = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
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
) -> int:
    """Run prompts and print each result as it ends. Bad lines are named, the others run; exit code 1 then."""
    from cbtui.cli.console import CommandError
    from cbtui.cli.run import RunOptions, run_prompts
    from cbtui.options import DEFAULT_MAX_TOKENS, runner_spec

    config = _config(mode, slots, budget, max_model_len, num_blocks, block_size)
    if file is None and sys.stdin.isatty():
        raise CommandError("no prompts: name a file, or pipe them in, one a line")
    options = RunOptions(
        runner=runner_spec(model, device, dtype, threads, exact=exact),
        config=config,
        source=file or "-",
        max_tokens=max_tokens,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        temperature=temperature,
        seed=seed,
        raw=raw,
        ignore_eos=ignore_eos,
        as_json=as_json,
    )
    return run_prompts(options)


app.command()(bench)

models = typer.Typer(
    help="The models there are, and whether one can be run.", context_settings=app.info.context_settings
)
app.add_typer(models, name="models")


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


def _config(
    mode: str, slots: int, budget: int, max_model_len: int, num_blocks: int, block_size: int
) -> EngineConfig:
    from engine.config import EngineConfig
    from engine.scheduling.modes import mode_named

    return EngineConfig(
        mode=mode_named(mode).name,
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
    )


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
