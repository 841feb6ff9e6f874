"""`cbtui compare A.trace B.trace`: recorded runs of the same requests, compared without a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cbtui.cli.compare import show
from cbtui.cli.console import CommandError, listed
from cbtui.cli.sources import Complaints
from cbtui.looks.tokens import prose
from cbtui.telling.words import count
from engine.attach.recordings import read_recording
from engine.config import EngineConfig
from engine.runner import Ready
from engine.step.mask import layer_kinds
from engine.stream.comparison import FAULTS, compare
from engine.stream.ledger import Ledger
from engine.stream.records import UNKNOWN_TOKEN, StepRecord
from engine.stream.trace_files import Trace, info_of


def are_traces(files: Sequence[str]) -> bool:
    """Whether these are recorded runs rather than requests to run.

    Raises:
        CommandError: several files, and not all are traces.
    """
    from engine.attach.recordings import is_recording

    found = [file != "-" and is_recording(Path(os.path.expanduser(file))) for file in files]
    if len(files) > 1 and not all(found):
        others = [file for file, one in zip(files, found, strict=True) if not one]
        are = "is no trace" if len(others) == 1 else "are no traces"
        raise CommandError(f"{listed(others)} {are}: several files must all be recorded runs")
    return bool(found) and all(found)


def compare_traces(files: Sequence[str], *, as_json: bool) -> int:
    """Compare recorded runs and print it.

    Returns:
        The exit code: 1 where outputs differ by more than a near tie, a forward failed, or a trace is broken.

    Raises:
        CommandError, TraceError, ValueError: there is nothing to compare.
    """
    traces = [read_recording(Path(os.path.expanduser(file))) for file in files]
    broken = False
    for file, trace in zip(files, traces, strict=True):
        complaints = Complaints(file)
        if trace.error:
            complaints.add(f"{trace.error}; what stands before is compared")
        elif left := _unfinished(trace):
            complaints.add(
                f"it ends with {left:,} of its requests unfinished, so it was cut short; what is there counts"
            )
        broken = broken or bool(trace.error)
        if not any(isinstance(record, StepRecord) for record in trace.records):
            raise CommandError(f"{file} holds no step")
        if len(files) > 1 and (why := _why_incomparable(trace)):
            raise CommandError(f"{file} cannot be compared: {why}")
    names = _names(files, traces)
    records = {name: trace.records for name, trace in zip(names, traces, strict=True)}
    first = traces[0]
    step = next(record for record in first.records if isinstance(record, StepRecord))
    comparison = compare(records, Ready(info_of(first.header), epoch=step.epoch), EngineConfig())
    # Whatever limits somebody else's engine ran under, and none that it does not tell.
    comparison = msgspec.structs.replace(
        comparison,
        max_num_seqs=step.max_num_seqs,
        max_num_batched_tokens=step.max_num_batched_tokens or None,
        is_one_code=all(trace.header.provenance is None for trace in traces),
    )
    summaries = {
        name: f"{_mode(trace)}, {trace.header.model}, {trace.header.device} {trace.header.dtype}"
        for name, trace in zip(names, traces, strict=True)
    }
    kinds = layer_kinds(first.header.layer_windows)
    show(comparison, records, as_json=as_json, summaries=summaries, kinds=kinds)
    return 1 if broken or comparison.verdict in FAULTS else 0


def _unfinished(trace: Trace) -> int:
    """Requests that came and never ended: cut off between two lines, a trace shows it in nothing else."""
    came = {request.request_id for record in trace.records for request in record.events.submitted}
    return len(came - {finish.request_id for record in trace.records for finish in record.events.finished})


def _why_incomparable(trace: Trace) -> str:
    """Why outputs of a recorded run cannot be held against another's; empty: they can."""
    stories = Ledger.of(trace.records).stories.values()
    source = trace.header.provenance
    whose = prose(source.engine) if source else "its engine"
    if not stories:
        return f"{whose} names no requests, and none was sent from here"
    untold = [story for story in stories if min(story.output_token_ids, default=0) <= UNKNOWN_TOKEN]
    if not untold:
        return ""
    known = all(UNKNOWN_TOKEN not in story.output_token_ids for story in untold)
    what = "only the texts, not the ids, of the output tokens" if known else "no output tokens"
    return f"{whose} tells {what} of {len(untold):,} of its {count(len(stories), 'request')}"


def _mode(trace: Trace) -> str:
    """The modes a trace ran in, in order."""
    modes = [record.mode for record in trace.records if isinstance(record, StepRecord)]
    return listed(list(dict.fromkeys(modes)))


def _names(files: Sequence[str], traces: Sequence[Trace]) -> list[str]:
    """What to call the runs: this engine's by mode if that tells them apart, else by file, or by number."""
    by_mode = [] if any(trace.header.provenance for trace in traces) else [_mode(trace) for trace in traces]
    for names in (by_mode, [Path(file).name for file in files]):
        if len(set(names)) == len(files):
            return names
    return [f"{number}: {Path(file).name}" for number, file in enumerate(files, 1)]
