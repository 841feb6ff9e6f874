"""The commands and their options. Imports nothing heavy: `--help` must come at once.

Every option is checked here, so that a mistake is one sentence before any model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui import __version__
from cbtui.cli.attach_command import attach
from cbtui.cli.bench import bench
from cbtui.cli.compare_command import compare
from cbtui.cli.doctor_command import doctor
from cbtui.cli.engine_options import EngineOptions, MaxTokens, Mode, Raw, SamplingOptions, Verify
from cbtui.cli.export_command import export
from cbtui.cli.file_options import FORMATS, Arrivals, Limit, Record, checked_arrivals, trace_path
from cbtui.cli.help import EXIT_CODES, HEADLESS, HELP, MACHINE, SCREEN, Command
from cbtui.cli.metrics_option import Metrics
from cbtui.cli.model_options import Model, RunsOn
from cbtui.cli.models_app import models
from cbtui.cli.option_groups import with_groups
from cbtui.cli.program import Program
from cbtui.cli.replay_command import replay
from cbtui.cli.run_command import run
from cbtui.cli.screen_files import screen_workload, with_bad
from cbtui.cli.screen_options import (
    History,
    Paused,
    Speed,
    Stories,
    Theme,
    TypedMaxTokens,
    need_terminal,
    steps_per_s,
    theme_named,
)
from cbtui.cli.serve_command import PASSES_ON, serve
from cbtui.cli.settings_command import settings
from cbtui.cli.vllm_options import ENGINES, EngineName, Vllm, VllmArguments, vllm_serve

if TYPE_CHECKING:
    from cbtui.options import LaunchOptions, VllmServe

    #: Who opens a screen; `launch` may be given another than `run_app`, as its context's object.
    OpenScreen = Callable[[LaunchOptions], int]

app = typer.Typer(
    name="cbtui",
    cls=Program,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    help=(
        "A microscope for LLM serving: a real continuous-batching engine, every forward pass on your "
        "terminal. `cbtui` alone is `cbtui launch`, and takes its FILE and options."
    ),
    epilog=EXIT_CODES,
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


def launch(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Requests to begin with: " + FORMATS)
    ] = None,
    *,
    speed: Speed = "8",
    paused: Paused = False,
    demo: Annotated[bool, typer.Option("--demo", help="Begin with the tutorial's six requests.")] = False,
    raw: Raw = False,
    record: Record = None,
    metrics: Metrics = None,
    history: History = 10_000,
    stories: Stories = 5_000,
    theme: Theme = None,
    limit: Limit = None,
    arrivals: Arrivals = None,
    max_tokens: TypedMaxTokens = None,
    sampling: SamplingOptions,
    mode: Mode = "continuous",
    verify: Verify = False,
    engine: EngineOptions,
    model: Model = None,
    runs_on: RunsOn,
    engine_name: EngineName = "cbtui",
    vllm: Vllm = None,
    vllm_arguments: VllmArguments = None,
) -> int:
    """Open the screen.

    Defaults can be changed in a file: `cbtui settings` says which and how.
    """
    from cbtui.options import DEFAULT_MAX_TOKENS, LaunchOptions

    other = _other_engine(context, engine_name, vllm, vllm_arguments)
    asked, most_s, colours = sampling.asked(), steps_per_s(speed), theme_named(theme)
    runner, config = runs_on.spec(model), engine.config(mode)
    factor, trace = checked_arrivals(arrivals), trace_path(record)
    open_screen: OpenScreen | None = context.obj
    if open_screen is None:
        need_terminal(reads_stdin=file == "-")
    # The settings file may change what a typed prompt gets; only the command line caps a file's requests.
    source = context.get_parameter_source("max_tokens")
    is_cap = source is not None and source.name == "COMMANDLINE"
    workload = screen_workload(file, max_tokens if is_cap else None, limit, asked)
    options = LaunchOptions(
        runner=runner,
        config=config,
        speed=most_s,
        paused=paused,
        demo=demo,
        raw=raw,
        max_tokens=max_tokens or DEFAULT_MAX_TOKENS,
        history=history,
        stories=stories,
        asked=asked,
        requests=workload.requests if workload else (),
        arrivals=factor,
        record=trace,
        metrics=metrics,
        verify=verify,
        theme=colours,
        vllm=other,
    )
    if open_screen is None:
        from cbtui.opening import run_app

        open_screen = run_app
    return with_bad(open_screen(options), workload)


def _other_engine(
    context: typer.Context, name: str, executable: str | None, arguments: list[str] | None
) -> VllmServe | None:
    """What to start instead of this engine.

    Raises:
        ValueError: there is no such engine, or it cannot be started so.
    """
    if name not in ENGINES:
        raise ValueError(f"--engine must be one of {', '.join(ENGINES)}, not {name}")
    if name == "vllm":
        return vllm_serve(context, executable, arguments or [])
    if executable is not None:
        raise ValueError("--vllm goes with --engine vllm")
    return None


def race(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help=FORMATS + " Default: the tutorial's six requests.",
        ),
    ] = None,
    *,
    limit: Limit = None,
    arrivals: Arrivals = None,
    max_tokens: MaxTokens = None,
    engine: EngineOptions,
    model: Model = None,
    runs_on: RunsOn,
) -> int:
    """Watch two modes race on the same requests, step by step in turn."""
    from cbtui.options import LaunchOptions
    from engine.workload import tutorial_workload

    factor, runner, config = checked_arrivals(arrivals), runs_on.spec(model), engine.config("continuous")
    need_terminal(reads_stdin=file == "-")
    workload = screen_workload(file, max_tokens, limit)
    options = LaunchOptions(
        runner=runner,
        config=config,
        arrivals=factor,
        race=workload.requests if workload else tuple(tutorial_workload()),
    )
    from cbtui.opening import run_app

    return with_bad(run_app(options), workload)


def lesson(
    number: Annotated[int | None, typer.Argument(metavar="N", help="Which one; none lists them.")] = None,
    *,
    real: Annotated[
        bool, typer.Option("--real", help="On the default model, not on the toy.", rich_help_panel="Model")
    ] = False,
    model: Model = None,
    runs_on: RunsOn,
) -> int:
    """Six short guided scenes, on a toy model or a real one."""
    from cbtui.cli.console import CommandError
    from cbtui.lessons.scenes import LESSONS

    if number is None:
        for place, one in enumerate(LESSONS, 1):
            typer.echo(f"{place}  {one.title}\n   {one.question}")
        return 0
    if not 1 <= number <= len(LESSONS):
        raise CommandError(f"there are lessons 1 to {len(LESSONS)}; `cbtui lesson` lists them")
    spec = runs_on.spec(model)
    need_terminal()
    from cbtui.opening import run_app, run_lesson
    from cbtui.options import LaunchOptions
    from engine.worker.wire import RunnerSpec

    if not real and spec == RunnerSpec():
        return run_lesson(number)
    return run_app(LaunchOptions(runner=spec, lesson=number, lesson_on_model=True))


def _add(panel: str, *commands: Callable[..., int]) -> None:
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(with_groups(command))


_add(SCREEN, launch, attach, race, lesson, replay)
app.command(cls=Command, rich_help_panel=SCREEN, context_settings=PASSES_ON)(serve)
_add(HEADLESS, compare, run, export, bench)
_add(MACHINE, doctor, settings)
app.add_typer(models, name="models", rich_help_panel=MACHINE)
