"""Options that say which model runs and how, for every command that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui.cli.completions import devices, dtypes

if TYPE_CHECKING:
    from engine.worker.wire import RunnerSpec

PANEL = "Model"

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A folder, a .gguf file or a Hub id (owner/name); default: SmolLM2-135M-Instruct.",
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOn:
    """How a model is run, as the command line says; what is None stays the runner's own choice."""

    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="cpu (the default), cuda, mps, or auto: the first of cuda, mps and cpu that is here.",
            autocompletion=devices,
            rich_help_panel=PANEL,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="float32 (the default), bfloat16 or float16.",
            autocompletion=dtypes,
            rich_help_panel=PANEL,
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=1024, metavar="N", help="Threads of the model.", rich_help_panel=PANEL),
    ] = None
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Logits bitwise the same alone and in any batch; float32 on one CPU thread, slower. Not "
            "claimed where a prompt is fed in other pieces: chunked prefill, prefix hits, recomputation.",
            rich_help_panel=PANEL,
        ),
    ] = False

    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read pickled weights (.bin, .pt), if there are no others. Only where you trust them: "
            "reading them may run code.",
            rich_help_panel=PANEL,
        ),
    ] = False
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run Python code that comes with the model. Only where you have read it.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def spec(self, model: str | None) -> RunnerSpec:
        """The model process to start.

        Args:
            model: which model; None: the default one.

        Raises:
            ValueError: there is no such device or type.
        """
        from cbtui.options import runner_spec

        return runner_spec(
            model,
            self.device,
            self.dtype,
            self.threads,
            exact=self.exact,
            allow_pickle=self.allow_pickle,
            trust_remote_code=self.trust_remote_code,
        )
