"""`cbtui compare`: the same requests in each mode, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cbtui.cli.console import CommandError, Progress, json_text, report_console, write_line
from cbtui.cli.models import loaded_model
from cbtui.cli.recording import path_of_mode, recording
from cbtui.cli.report import Reported, report
from cbtui.cli.sources import Complaints, FileOptions, runnable, workload_of
from cbtui.metrics_http import serving_metrics
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.mode_runs import run_modes
from engine.runner import EncodedPrompt, ModelRunner, Ready
from engine.session import config_for, encode, token_bytes_of
from engine.step.mask import LayerKind, layer_kinds
from engine.stream.comparison import FAULTS, Comparison, compare
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord
from engine.stream.trace_files import TraceRecorder, header_of
from engine.verify.runs import verify_runs
from engine.worker.wire import RunnerSpec
from engine.workload import WorkloadError, tutorial_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of `cbtui compare`, checked.

    Attributes:
        runner, config: the model and the limits; the modes replace `config.mode`.
        modes: in the order they run.
        file: the requests; None: the tutorial's six.
        max_tokens: output tokens at most of every request.
        ignore_eos: None: only the built-in requests do.
        stop: strings that end a request.
        chat: through the model's chat template.
        as_json: data instead of a report.
        record: write a trace of each mode's run, the mode's name put into this one.
        metrics: a port to serve metrics on, each mode's as an engine of its name; None: they are not served.
        verify: hold every output against the same request run alone.
    """

    runner: RunnerSpec
    config: EngineConfig
    modes: tuple[str, ...]
    file: FileOptions | None = None
    max_tokens: int | None = None
    ignore_eos: bool | None = None
    stop: tuple[str, ...] = ()
    chat: bool = False
    as_json: bool = False
    record: Path | None = None
    metrics: int | None = None
    verify: bool = True


def run_compare(options: CompareOptions) -> int:
    """Run the comparison and print it.

    Returns:
        The exit code: 1 where outputs differ by more than a near tie (from each other, or from those alone),
        a forward failed, or a line was bad.

    Raises:
        CommandError, WorkloadError, RunnerError: it cannot be run.
    """
    requests, complaints = _requests(options)
    progress = Progress()
    with ExitStack() as stack:
        recorders = _recorders(options, complaints, stack)
        metrics = stack.enter_context(serving_metrics(options.metrics))
        runner, ready = stack.enter_context(loaded_model(options.runner, progress))
        if options.chat and not ready.info.has_chat_template:
            raise CommandError(f"{ready.info.name} has no chat template; leave --chat out")
        config = config_for(options.config, ready.info)
        encoded = _encoded(runner, requests)
        readers: dict[str, list[Callable[[Record], None]]] = {mode: [] for mode in options.modes}
        for mode, recorder in recorders.items():
            recorder.begin(header_of(ready.info, config))
            readers[mode].append(recorder.write)
        if metrics is not None:
            for mode in options.modes:
                readers[mode].append(metrics.reader(ready.info.name, mode))
        records = _records(options, config, runner, ready, requests, encoded, progress, readers)
        if options.verify:
            _verify(records, runner, ready, progress, readers)
    comparison = compare(records, ready, config)
    windows = ready.info.facts.layer_windows
    show(comparison, records, as_json=options.as_json, kinds=layer_kinds(windows))
    return 1 if complaints.count or comparison.verdict in FAULTS else 0


def _recorders(options: CompareOptions, complaints: Complaints, stack: ExitStack) -> dict[str, TraceRecorder]:
    """A recorder for each mode, if the runs are recorded."""
    found = {}
    for mode in options.modes if options.record else ():
        assert options.record is not None
        path = path_of_mode(options.record, mode)
        recorder = stack.enter_context(recording(path, complaints))
        assert recorder is not None
        found[mode] = recorder
    return found


def _requests(options: CompareOptions) -> tuple[list[PromptRequest], Complaints]:
    """What to run; bad lines have been said."""
    if options.file is None:
        return [_limited(request, options) for request in tutorial_workload()], Complaints("tutorial")
    workload = runnable(workload_of(options.file, default=None))
    complaints = Complaints(workload.name)
    complaints.add_bad(workload.bad)
    return [_limited(request, options) for request in workload.requests], complaints


def _limited(request: PromptRequest, options: CompareOptions) -> PromptRequest:
    most = request.max_tokens if options.max_tokens is None else options.max_tokens
    ignore_eos = request.ignore_eos if options.ignore_eos is None else options.ignore_eos
    return msgspec.structs.replace(
        request,
        max_tokens=min(request.max_tokens, most),
        ignore_eos=ignore_eos,
        stop=options.stop,
        chat=options.chat and not request.verbatim,
        temperature=0.0,
        seed=0,  # greedy: it draws nothing, and the records should be the same at every run
    )


def _encoded(runner: ModelRunner, requests: Sequence[PromptRequest]) -> list[EncodedPrompt]:
    encoded = encode(runner, requests)
    for number, prompt in enumerate(encoded, 1):
        if prompt.error:
            raise WorkloadError(f"request {number} cannot be encoded: {prompt.error}")
    return encoded


def _records(
    options: CompareOptions,
    config: EngineConfig,
    runner: ModelRunner,
    ready: Ready,
    requests: Sequence[PromptRequest],
    encoded: Sequence[EncodedPrompt],
    progress: Progress,
    readers: Mapping[str, Sequence[Callable[[Record], None]]],
) -> dict[str, list[Record]]:
    total = sum(request.max_tokens for request in requests)
    made = dict.fromkeys(options.modes, 0)

    def on_record(mode: str, record: Record) -> None:
        for read in readers[mode]:
            read(record)
        if not isinstance(record, StepRecord):
            return
        made[mode] += sum(len(segment.outputs) for segment in record.segments)
        place = f"{options.modes.index(mode) + 1} of {len(options.modes)}"
        progress.say(
            f"{mode} ({place}): step {record.step:,}, {made[mode]:,} of at most {total:,} tokens",
            at_once=False,
        )

    progress.say("warming up")
    records = run_modes(
        runner,
        ready,
        requests,
        encoded,
        config,
        options.modes,
        token_bytes_of(ready.info),
        on_record,
        arrivals=options.file.arrivals if options.file else None,
    )
    progress.clear()
    return records


def _verify(
    records: dict[str, list[Record]],
    runner: ModelRunner,
    ready: Ready,
    progress: Progress,
    readers: Mapping[str, Sequence[Callable[[Record], None]]],
) -> None:
    """Check every output alone; the verdicts join the records, and go to all who read them."""

    def say(done: int, total: int) -> None:
        progress.say(f"alone: {done} of {total} requests checked")

    progress.say("checking the outputs alone")
    for mode, record in verify_runs(runner, ready, records, token_bytes_of(ready.info), say).items():
        records[mode].append(record)
        for read in readers[mode]:
            read(record)
    progress.clear()


def show(
    comparison: Comparison,
    records: Mapping[str, Sequence[Record]],
    *,
    as_json: bool,
    summaries: Mapping[str, str] | None = None,
    kinds: Sequence[LayerKind] = (LayerKind(),),
) -> None:
    """Print a comparison as data or as a report.

    Args:
        summaries: a line about each run; None: what its mode does.
        kinds: the model's kinds of layers.
    """
    if as_json:
        write_line(json_text(comparison))
        return
    console, look = report_console()
    ledgers = {mode: Ledger.of(run) for mode, run in records.items()}
    for line in report(Reported(comparison, records, ledgers, summaries, kinds), look):
        console.print(line)
