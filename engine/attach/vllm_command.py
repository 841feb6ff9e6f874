"""The command line that starts a vLLM which tells every step: where its executable is, what it is given.

Pure but for looking at the environment and PATH.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The environment variable that says where vLLM is.
VLLM_VARIABLE = "CBTUI_VLLM"
#: Read by the scheduler inside vLLM (`cbtui_vllm.places`).
STREAM_VARIABLE = "CBTUI_VLLM_STREAM"
SCHEDULER = "cbtui_vllm.scheduler.RecordingScheduler"
#: Arguments of vLLM's that this program has to set itself, and what takes their place.
_OURS = {
    "--host": "it listens on 127.0.0.1 only",
    "--port": "a free port is taken",
    "--uds": "it listens on 127.0.0.1 only",
    "--scheduler-cls": "the one that tells every step is used",
}


def scheduler_folder() -> Path:
    """What has to be on vLLM's PYTHONPATH: a folder with that one package."""
    return Path(__file__).parent / "in_vllm"


def find_vllm(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The vLLM executable: as given, as the environment says, or the one on PATH.

    Raises:
        ValueError: there is none; the sentence says how to have one.
    """
    asked = given or environment.get(VLLM_VARIABLE)
    found = shutil.which(os.path.expanduser(asked or "vllm"), path=environment.get("PATH"))
    if found is not None:
        return found
    if asked:
        raise ValueError(f"{asked} cannot be run; --vllm (or {VLLM_VARIABLE}) names vLLM's executable")
    raise ValueError(
        "there is no vllm on PATH: activate the environment it is installed in, or name its executable "
        f"with --vllm or {VLLM_VARIABLE}"
    )


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse what would be in the way.

    Raises:
        ValueError: an argument that this program sets itself.
    """
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if name in _OURS:
            raise ValueError(f"vLLM's {name} is set by cbtui: {_OURS[name]}")


def names_model(arguments: Sequence[str]) -> bool:
    """Whether vLLM's arguments say which model to serve."""
    has_option = any(one.partition("=")[0] == "--model" for one in arguments)
    return has_option or (bool(arguments) and not arguments[0].startswith("-"))


def serve_command(vllm: str, arguments: Sequence[str], port: int) -> list[str]:
    """The whole command."""
    ours = ["--host", "127.0.0.1", "--port", str(port), "--scheduler-cls", SCHEDULER]
    return [vllm, "serve", *arguments, *ours]


def serve_environment(stream: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the command is run with: the scheduler can be imported, and knows where to write to."""
    path = [str(scheduler_folder()), environment.get("PYTHONPATH", "")]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        STREAM_VARIABLE: stream,
    }


def line_to_use(model: str = "MODEL") -> str:
    """The line that makes any vLLM tell its steps, to be copied to where it runs."""
    folder = shlex.quote(str(scheduler_folder()))
    return f"PYTHONPATH={folder} vllm serve {model} --scheduler-cls {SCHEDULER}"
