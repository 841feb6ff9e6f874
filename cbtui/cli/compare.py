"""`cbtui compare`: the same requests in each mode, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cbtui.cli.console import CommandError, Progress, report_console, write_line
from cbtui.cli.models import loaded_model
from cbtui.cli.report import Reported, report
from cbtui.cli.sources import Complaints, FileOptions, runnable, workload_of
from engine.commands import PromptRequest
from engine.config import EngineConfig
from engine.runner import EncodedPrompt, ModelRunner, Ready
from engine.session import config_for, encode, token_bytes_of
from engine.stream.comparison import Comparison, compare, folded, run_modes
from engine.stream.records import Record, StepRecord
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


def run_compare(options: CompareOptions) -> int:
    """Run the comparison and print it.

    Returns:
        The exit code: 1 where outputs differ by more than a near tie, a forward failed, or a line was bad.

    Raises:
        CommandError, WorkloadError, RunnerError: it cannot be run.
    """
    requests, num_bad = _requests(options)
    progress = Progress()
    with loaded_model(options.runner, progress) as (runner, ready):
        if options.chat and not ready.info.has_chat_template:
            raise CommandError(f"{ready.info.name} has no chat template; leave --chat out")
        config = config_for(options.config, ready.info)
        encoded = _encoded(runner, requests)
        records = _records(options, config, runner, ready, requests, encoded, progress)
    comparison = compare(records, ready, config)
    if options.as_json:
        write_line(msgspec.json.encode(comparison).decode())
    else:
        _print(comparison, records)
    return 1 if num_bad or comparison.verdict in ("mismatch", "failed") else 0


def _requests(options: CompareOptions) -> tuple[list[PromptRequest], int]:
    """What to run, and how many bad lines there were; each has been said."""
    if options.file is None:
        return [_limited(request, options) for request in tutorial_workload()], 0
    workload = runnable(workload_of(options.file, default=None))
    complaints = Complaints(workload.name)
    complaints.add_bad(workload.bad)
    return [_limited(request, options) for request in workload.requests], complaints.count


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
) -> dict[str, list[Record]]:
    total = sum(request.max_tokens for request in requests)
    made = dict.fromkeys(options.modes, 0)

    def on_step(mode: str, record: StepRecord) -> None:
        made[mode] += sum(segment.sampled is not None for segment in record.segments)
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
        on_step,
        arrivals=options.file.arrivals if options.file else None,
    )
    progress.clear()
    return records


def _print(comparison: Comparison, records: dict[str, list[Record]]) -> None:
    console, look = report_console()
    reported = Reported(comparison, records, {mode: folded(run) for mode, run in records.items()})
    for line in report(reported, look):
        console.print(line)
