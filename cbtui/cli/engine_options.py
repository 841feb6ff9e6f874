"""Options that say how the engine is set, and what is asked of it, for every command that runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from engine.config import EngineConfig

PANEL = "Engine"
SAMPLING = "Sampling"

Mode = Annotated[str, typer.Option(metavar="MODE", help="static, continuous-padded, continuous or chunked.")]
Slots = Annotated[
    int, typer.Option(help="How many requests run at once (max_num_seqs).", rich_help_panel=PANEL)
]
Budget = Annotated[
    int,
    typer.Option(help="Token positions in one step at most (max_num_batched_tokens).", rich_help_panel=PANEL),
]
MaxModelLen = Annotated[
    int, typer.Option(help="Longest prompt + output, tokens; the model's if less.", rich_help_panel=PANEL)
]
NumBlocks = Annotated[int, typer.Option(help="KV blocks.", rich_help_panel=PANEL)]
BlockSize = Annotated[int, typer.Option(help="Tokens in a KV block.", rich_help_panel=PANEL)]
Policy = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Who enters first: fcfs, priority or shortest-first.", rich_help_panel=PANEL
    ),
]
PrefixCaching = Annotated[
    bool,
    typer.Option(
        "--prefix-caching/--no-prefix-caching",
        help="Share KV blocks between requests that begin with the same tokens.",
        rich_help_panel=PANEL,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Output tokens of a request at most.", rich_help_panel=SAMPLING),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 is greedy.", rich_help_panel=SAMPLING)]
TopK = Annotated[
    int,
    typer.Option(min=0, help="Draw among so many likeliest tokens; 0: among all.", rich_help_panel=SAMPLING),
]
TopP = Annotated[
    float,
    typer.Option(
        help="Draw among the likeliest tokens that together reach this probability.",
        rich_help_panel=SAMPLING,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="End a request once its output holds this, and cut the text before it; may be given again.",
        rich_help_panel=SAMPLING,
    ),
]


def engine_config(
    mode: str,
    slots: int,
    budget: int,
    max_model_len: int,
    num_blocks: int,
    block_size: int,
    policy: str,
    prefix_caching: bool,
) -> EngineConfig:
    """The engine's configuration, checked.

    Raises:
        ValueError: there is no such mode or policy, or a limit cannot be.
    """
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
