"""Reading config, tokenizer and weights of a folder, a GGUF file or a Hub id through transformers.

Turns what transformers raises into one sentence with the stage it happened in. A Hub id is taken from
the local Hub cache if it is there; only otherwise is the network asked, and first whether there is one
(transformers alone would retry for half a minute).
"""

from __future__ import annotations

import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engine.model_store import ResolvedModel
from engine.runner import ModelLoadError
from engine.torch_runner.checks import check_config

T = TypeVar("T")

#: Seconds the Hub gets to accept a connection.
_REACH_S = 5.0
#: What pickled weights are called. Reading them may run code, so they are not read unless asked for.
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
#: How far into a GGUF file its architecture is looked for, bytes; by convention it comes first.
_GGUF_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Trust:
    """What the files of a model may do beyond being data; nothing, unless somebody asked for it by name.

    Attributes:
        pickle: weights may be pickled. They are still read by torch's unpickler that knows tensors only.
        remote_code: Python files that came with the model are run.
    """

    pickle: bool = False
    remote_code: bool = False


def read_config(source: ResolvedModel, trust: Trust) -> PreTrainedConfig:
    """The config of a folder or a Hub id.

    Raises:
        ModelLoadError: there is none, or it is of a model transformers does not know.
    """
    return _read(
        source,
        "config",
        lambda **where: AutoConfig.from_pretrained(source.path, trust_remote_code=trust.remote_code, **where),
    )


def read_tokenizer(source: ResolvedModel, trust: Trust) -> PreTrainedTokenizerBase:
    """The tokenizer.

    Raises:
        ModelLoadError: there is none, or it cannot be read.
    """
    if source.kind == "gguf":
        file = Path(source.path)
        return _read(
            source,
            "tokenizer",
            lambda: AutoTokenizer.from_pretrained(
                file.parent, gguf_file=file.name, trust_remote_code=trust.remote_code
            ),
        )
    return _read(
        source,
        "tokenizer",
        lambda **where: AutoTokenizer.from_pretrained(
            source.path, trust_remote_code=trust.remote_code, **where
        ),
    )


def check_gguf(source: ResolvedModel) -> None:
    """Refuse a GGUF file whose architecture gives it away, before its vocabulary is unpacked (seconds).

    What the file says of itself stands in its first key, `general.architecture`; what that type needs, its
    default config tells. An architecture transformers does not know is its own affair to refuse.

    Raises:
        ModelLoadError: the file has no such key, or its architecture cannot be run.
    """
    with Path(source.path).open("rb") as file:
        head = file.read(_GGUF_HEAD)
    key = b"general.architecture"
    at = head.find(key) + len(key)
    if at < len(key) or len(head) < at + 12:
        raise ModelLoadError(
            f"{source.source} is damaged, cut short or incomplete: it does not say its architecture",
            "find",
            "choose another file with --model",
        )
    length = int.from_bytes(head[at + 4 : at + 12], "little")  # after the value's type, four bytes
    name = head[at + 12 : at + 12 + length].decode(errors="replace")
    if name in CONFIG_MAPPING:
        check_config(CONFIG_MAPPING[name]())


def read_weights(source: ResolvedModel, dtype: torch.dtype, trust: Trust) -> PreTrainedModel:
    """The model with its weights, in evaluation mode, on the CPU.

    Raises:
        ModelLoadError: the weights are missing, incomplete or damaged, or there is no memory for them.
    """
    settings: dict[str, Any] = {
        "dtype": dtype,
        "output_loading_info": True,
        "trust_remote_code": trust.remote_code,
    }
    if source.kind == "gguf":
        file = Path(source.path)
        settings |= {"gguf_file": file.name, "quantization_config": GgufConfig(dequantize=True)}
        model, report = _read(
            source, "weights", lambda: AutoModelForCausalLM.from_pretrained(file.parent, **settings)
        )
    else:
        if source.kind == "folder":
            _check_weight_files(source, trust)
        # None: safetensors where there are some, else pickled ones.
        settings["use_safetensors"] = None if trust.pickle else True
        model, report = _read(
            source,
            "weights",
            lambda **where: AutoModelForCausalLM.from_pretrained(source.path, **settings, **where),
        )
    # transformers fills missing weights with random numbers and only warns.
    if missing := sorted(report["missing_keys"]):
        raise ModelLoadError(
            f"the weights of {source.source} are incomplete: {len(missing)} are missing, first {missing[0]}",
            "weights",
        )
    return model.eval()


def _check_weight_files(source: ResolvedModel, trust: Trust) -> None:
    folder = Path(source.path)
    files = sorted(folder.glob("*.safetensors"))
    if not files and any(any(folder.glob(pattern)) for pattern in _PICKLES):
        if trust.pickle:
            return
        raise ModelLoadError(
            f"the folder {source.source} holds pickled weights only, which may run code when they are read; "
            "cbtui reads .safetensors files",
            "weights",
            "choose another model with --model, save this one again as safetensors, or say --allow-pickle if "
            "you trust where it comes from",
        )
    if not files:
        raise ModelLoadError(f"the folder {source.source} holds no weights (no .safetensors file)", "weights")
    for file in files:
        with file.open("rb") as opened:
            if opened.read(24).startswith(b"version https://git-lfs"):
                raise ModelLoadError(
                    f"{file.name} in {source.source} is a Git LFS pointer, not the weights themselves",
                    "weights",
                    "git lfs pull",
                )


def _read(source: ResolvedModel, what: str, read: Callable[..., T]) -> T:
    try:
        return _from_hub(source, read) if source.kind == "hub" else read()
    except (ModelLoadError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library panics, and its panic is not an Exception
        raise ModelLoadError(*_explained(error, source, what)) from error


def _from_hub(source: ResolvedModel, read: Callable[..., T]) -> T:
    try:
        return read(local_files_only=True)
    except OSError as error:
        if not _hub_reachable():
            # Where only the weights are missing there may be others there, pickled ones.
            missing = "has no .safetensors weights" if "model.safetensors" in str(error) else "is not"
            raise ModelLoadError(
                f"{source.path} {missing} in the local Hub cache, and the Hub cannot be reached from here",
                "fetch",
                "give a folder or a .gguf file with --model, or none for the default model",
            ) from error
    return read(local_files_only=False)


def _hub_reachable() -> bool:
    """Whether asking the Hub makes sense. Behind a proxy only the attempt itself can tell."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies().keys() & {"http", "https", "all"}:
        return True
    url = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        with socket.create_connection((url.hostname or "", port), timeout=_REACH_S):
            return True
    except OSError:
        return False


def _explained(error: BaseException, source: ResolvedModel, what: str) -> tuple[str, str, str]:
    """Message, stage and hint for what transformers raised."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    causes = {type(c).__name__ for c in _causes(error)}
    another = "choose another model with --model"
    if causes & {"GatedRepoError"}:
        return f"{source.path} asks for its licence to be accepted on the Hub first", what, "hf auth login"
    if causes & {"RepositoryNotFoundError"}:
        return f"the Hub has no model {source.path}, or it is private", what, "hf auth login"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return f"there is not enough memory for the {what} of {source.source}", what, another
    if "trust_remote_code" in text:
        return (
            f"{source.source} needs code from its own repository, which cbtui does not run",
            what,
            ("choose another model with --model, or say --trust-remote-code if you have read that code"),
        )
    if "Weights only load failed" in text:
        return (
            f"the pickled weights of {source.source} hold more than tensors, which is not read",
            what,
            another,
        )
    if names & {"SafetensorError", "UnpicklingError", "EOFError"}:
        return f"the weights of {source.source} are damaged: {_first_line(text)}", what, "fetch them again"
    if "ignore_mismatched_sizes" in text:
        return f"the weights of {source.source} do not have the sizes its config says", what, another
    if "does not appear to have a file named" in text and what == "weights":
        return f"{source.source} holds no weights as .safetensors files", what, another
    if "Unrecognized configuration class" in text:
        return f"{source.source} is not a causal language model that transformers knows", what, another
    if "does not recognize this architecture" in text or "Unrecognized model" in text:
        return f"{source.source} is of a type that transformers does not know", what, another
    if "GGUF model with architecture" in text:
        return f"transformers cannot read {source.source}: {_first_line(text)}", what, another
    if source.kind == "gguf" and not isinstance(error, ImportError):
        return f"{source.source} is damaged, cut short or incomplete: {_first_line(text)}", what, another
    return f"the {what} of {source.source} cannot be read: {_first_line(text)}", what, ""


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and len(causes) < 10:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].rstrip(".:") if lines else "no reason given"
