"""Options that say how the engine is set, and what is asked of it, for every command that runs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cbtui.cli.completions import modes, policies

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.live.commands import PromptRequest

PANEL = "Engine"
SAMPLING = "Sampling"

Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="static, continuous-padded, continuous or chunked.",
        autocompletion=modes,
        rich_help_panel=PANEL,
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Run each finished greedy request again alone, while nothing else runs, and hold its tokens "
        "against that.",
        rich_help_panel=PANEL,
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Continue prompts; no chat template.")]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2_147_483_647,
        metavar="N",
        help="Output tokens of a request at most.",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The limits of the engine and who enters first, as the command line says; the mode is apart."""

    slots: Annotated[
        int,
        typer.Option(
            metavar="N", help="How many requests run at once (max_num_seqs).", rich_help_panel=PANEL
        ),
    ] = 3
    budget: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Token positions in one step at most (max_num_batched_tokens).",
            rich_help_panel=PANEL,
        ),
    ] = 2048
    max_model_len: Annotated[
        int,
        typer.Option(
            metavar="N", help="Longest prompt + output, tokens; the model's if less.", rich_help_panel=PANEL
        ),
    ] = 2048
    num_blocks: Annotated[int, typer.Option(metavar="N", help="KV blocks.", rich_help_panel=PANEL)] = 512
    block_size: Annotated[
        int, typer.Option(metavar="N", help="Tokens in a KV block.", rich_help_panel=PANEL)
    ] = 16
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who enters first: fcfs, priority or shortest-first.",
            autocompletion=policies,
            rich_help_panel=PANEL,
        ),
    ] = "fcfs"
    prefix_caching: Annotated[
        bool,
        typer.Option(
            "--prefix-caching",
            help="Share KV blocks between requests that begin with the same tokens.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def config(self, mode: str) -> EngineConfig:
        """The engine's configuration, checked.

        Raises:
            ValueError: there is no such mode or policy, or a limit cannot be.
        """
        from engine.config import ConfigError, EngineConfig
        from engine.scheduling.modes import mode_named
        from engine.scheduling.policies import policy_named

        mode, policy = mode_named(mode).name, policy_named(self.policy).name
        try:
            return EngineConfig(
                mode=mode,
                max_num_seqs=self.slots,
                max_num_batched_tokens=self.budget,
                max_model_len=self.max_model_len,
                num_blocks=self.num_blocks,
                block_size=self.block_size,
                policy=policy,
                prefix_caching=self.prefix_caching,
            )
        except ConfigError as exc:
            raise ConfigError(_in_options(str(exc))) from None


#: Limits by the options that set them.
_OPTIONS = {
    "max_num_seqs": "--slots",
    "max_num_batched_tokens": "--budget",
    "max_model_len": "--max-model-len",
    "num_blocks": "--num-blocks",
    "block_size": "--block-size",
}


def _in_options(message: str) -> str:
    """A sentence about limits in the words somebody typed."""
    for name, option in _OPTIONS.items():
        message = message.replace(name, option)
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How tokens are chosen where a request does not say, as the command line says."""

    temperature: Annotated[
        float, typer.Option(min=0.0, metavar="X", help="0 is greedy.", rich_help_panel=SAMPLING)
    ] = 0.0
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Draw among so many likeliest tokens; 0: among all.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0
    top_p: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Draw among the likeliest tokens that together reach this probability.",
            rich_help_panel=SAMPLING,
        ),
    ] = 1.0
    stop: Stop = None

    def asked(self, *, ignore_eos: bool = False) -> PromptRequest:
        """What a request is asked with: all but its text, length and chat template.

        Raises:
            ValueError: a value is out of range: said before anything is loaded.
        """
        from engine.live.commands import PromptRequest

        asked = PromptRequest(
            prompt="",
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            stop=tuple(self.stop or ()),
            ignore_eos=ignore_eos,
        )
        asked.sampling(lambda: 0)
        return asked
