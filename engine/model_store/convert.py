"""Running the conversion in a process of its own.

The caller then needs no torch, gets its memory back (the peak is 1.1 GiB) and survives an out-of-memory kill.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.model_store.fetch import end, last_words, python_path

#: Quiet libraries, and no look at the network: everything is in the file.
_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


class ConvertError(Exception):
    """The conversion did not finish; the message is one sentence for the user."""


class Part(msgspec.Struct, frozen=True):
    """One line the converting process prints: what it begins now, and how many parts are behind it."""

    part: str
    done: int
    total: int


def convert_in_child(gguf: Path, folder: Path, report: Callable[[str, int, int], None]) -> None:
    """Convert `gguf` into `folder` (existing, empty) with `python -m engine.torch_runner.convert`.

    `report` is called with what is done now, parts done and parts in all.

    Raises:
        ConvertError: the process failed or was killed.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            (sys.executable, "-m", "engine.torch_runner.convert", str(gguf), str(folder)),
            env={**os.environ, **_SETTINGS, "PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,  # its end-of-file tells the child that this process is gone
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            for line in process.stdout:
                try:
                    note = msgspec.json.decode(line, type=Part)
                except msgspec.DecodeError:
                    continue  # a library printed something
                report(note.part, note.done, note.total)
            process.wait()
        finally:
            end(process)
            process.stdin.close()
            process.stdout.close()
        if process.returncode == -signal.SIGKILL:
            raise ConvertError("its process was killed, probably for memory: it needs 1.2 GB")
        if process.returncode:
            errors.seek(0)
            words = last_words(errors.read().decode(errors="replace"))
            raise ConvertError(words or f"its process ended with code {process.returncode}")
