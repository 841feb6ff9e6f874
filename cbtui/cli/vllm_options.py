"""`cbtui launch --engine vllm -- …`: which engine, and what is said when options do not go together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cbtui.options import VllmServe

ENGINES = ("cbtui", "vllm")

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="cbtui, or vllm: started here and followed step by step. Its arguments go behind --.",
    ),
]
Vllm = Annotated[
    str | None,
    typer.Option(
        "--vllm", metavar="PATH", help="vLLM's executable. Default: $CBTUI_VLLM, or the one on PATH."
    ),
]
#: What stands behind `--`; `split_arguments` puts it here.
VllmArguments = Annotated[list[str] | None, typer.Option("--vllm-argument", hidden=True)]
#: Options of `launch` that mean something with any engine; the others are this engine's own.
_COMMON = frozenset(
    "file engine_name vllm vllm_arguments paused demo raw record metrics history stories theme limit "
    "arrivals max_tokens temperature top_k top_p stop".split()
)
#: What vLLM calls it.
_THERE = {
    "slots": "--max-num-seqs",
    "budget": "--max-num-batched-tokens",
    "max_model_len": "--max-model-len",
    "num_blocks": "--num-gpu-blocks-override",
    "block_size": "--block-size",
    "policy": "--scheduling-policy",
    "prefix_caching": "--enable-prefix-caching",
    "model": "the model's name",
    "dtype": "--dtype",
}


def split_arguments(arguments: list[str]) -> list[str]:
    """The arguments of `cbtui launch --engine vllm`, with those for vLLM, behind `--`, as options.

    For anything else `--` keeps its usual meaning.
    """
    if arguments[:1] != ["launch"] or "--" not in arguments:
        return arguments
    place = arguments.index("--")
    ours = arguments[:place]
    if not ("--engine=vllm" in ours or ("--engine", "vllm") in pairwise(ours)):
        return arguments
    return ours + [f"--vllm-argument={one}" for one in arguments[place + 1 :]]


def vllm_serve(context: typer.Context, executable: str | None, arguments: Sequence[str]) -> VllmServe:
    """The vLLM that is asked for; without a model's name it serves the default one.

    Raises:
        ValueError: there is no vLLM, or an option or argument that cannot be.
    """
    from cbtui.options import VllmServe
    from engine.attach.vllm_command import check_arguments, find_vllm, names_model

    _refuse_own_options(context)
    check_arguments(arguments)
    found = find_vllm(executable)
    if not names_model(arguments):
        arguments = (_default_model(), "--served-model-name", "SmolLM2-135M-Instruct", *arguments)
    return VllmServe(found, tuple(arguments))


def _refuse_own_options(context: typer.Context) -> None:
    for name in context.params:
        source = context.get_parameter_source(name)
        if name in _COMMON or source is None or source.name != "COMMANDLINE":
            continue
        option = "--" + name.replace("_", "-")
        there = f"; vLLM's is {_THERE[name]}, behind --" if name in _THERE else ""
        raise ValueError(f"{option} is an option of cbtui's own engine{there}")


def _default_model() -> str:
    from engine.model_store import is_ready, resolve

    if not is_ready():
        raise ValueError(
            "the default model is not in the cache folder yet (cbtui models fetch): name another behind --"
        )
    return resolve(None, lambda _: None).path
