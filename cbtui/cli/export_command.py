"""The command `cbtui export` and its options."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cbtui.export.run import RecordedRun

FORMATS = ("perfetto", "csv", "svg", "html")


def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A trace of --record, or a recording vLLM's file.")
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=lambda: list(FORMATS),
            help="perfetto (for ui.perfetto.dev and chrome://tracing), csv (a folder with requests.csv and "
            "steps.csv), svg (the timeline) or html (one page with the timeline and any step's mask).",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="The file to write, replaced if it is there; for csv a folder; - is standard output.",
        ),
    ],
) -> int:
    """Turn a recorded trace into a file for other programs."""
    from cbtui.cli.console import CommandError
    from cbtui.cli.sources import Complaints
    from cbtui.export.run import recorded_run
    from engine.attach.recordings import read_recording

    if to not in FORMATS:
        raise ValueError(f"--to must be one of {', '.join(FORMATS)}, not {to}")
    if to == "csv" and output == "-":
        raise ValueError("csv is two files: -o names a folder for them")
    trace = read_recording(Path(file).expanduser())
    try:
        run = recorded_run(trace.header, trace.records)
    except ValueError as error:
        raise CommandError(f"{file}: {trace.error or error}") from None
    try:
        _write(_rendered(run, to), output)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or output}: {error.strerror or error}") from None
    if trace.error:
        Complaints(file).add(f"{trace.error}; what stands before is exported")
        return 1
    return 0


def _rendered(run: RecordedRun, to: str) -> dict[str, bytes]:
    """Files by name; a single file has none."""
    match to:
        case "perfetto":
            from cbtui.export.perfetto import trace_json

            return {"": trace_json(run)}
        case "svg":
            from cbtui.export.timeline_svg import timeline_svg

            return {"": _encoded(timeline_svg(run))}
        case "html":
            from cbtui.export.page import page

            return {"": _encoded(page(run))}
    from cbtui.export.tables import tables

    return {name: _encoded(text) for name, text in tables(run).items()}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _write(files: dict[str, bytes], output: str) -> None:
    """Write them; a file that is there is replaced only once the new one is whole."""
    if output == "-":
        sys.stdout.buffer.write(files[""])
        sys.stdout.buffer.flush()
        return
    target = Path(output).expanduser()
    if "" not in files:
        target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = target / name if name else target
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device, or a folder, which says so itself
            continue
        part = path.with_name(f"{path.name}.part-{os.getpid()}")
        try:
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            error.filename = str(path)
            raise
