"""Trace files of the headless commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cbtui.cli.sources import Complaints
from engine.stream.trace_files import TraceRecorder


@contextmanager
def recording(path: Path | None, complaints: Complaints) -> Iterator[TraceRecorder | None]:
    """A recorder that is closed whatever happens; what stopped it early is a complaint.

    Args:
        path: None: nothing is recorded.

    Raises:
        TraceError: the file cannot be written.
    """
    if path is None:
        yield None
        return
    recorder = TraceRecorder(path)
    try:
        yield recorder
    finally:
        recorder.close()
        if recorder.error:
            complaints.add(recorder.error)


def path_of_mode(path: Path, mode: str) -> Path:
    """A file of its own for a mode's run: `trace.jsonl.gz` is `trace-static.jsonl.gz`."""
    name, dot, endings = path.name.partition(".")
    return path.with_name(f"{name}-{mode}{dot}{endings}")
