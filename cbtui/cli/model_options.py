"""Options that say which model runs and how, for every command that runs one."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Model"
#: Of every command and group of commands.
HELP = {"help_option_names": ["-h", "--help"]}

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A folder, a .gguf file or a Hub id (owner/name); default: SmolLM2-135M-Instruct.",
        rich_help_panel=PANEL,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="cpu (the default), cuda, mps, or auto: the first of cuda, mps and cpu that is here.",
        rich_help_panel=PANEL,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="float32 (the default), bfloat16 or float16.", rich_help_panel=PANEL),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads of the model.", rich_help_panel=PANEL)
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Logits bitwise the same alone and in any batch; float32 on one CPU thread, slower. Not claimed "
        "where a prompt is fed in other pieces: chunked prefill, prefix hits, recomputation.",
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print data instead of text.")]
