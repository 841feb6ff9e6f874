"""`cbtui run`: prompts from a file or a pipe through the engine, each result printed as it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.text import Text

from cbtui.cli.batch_output import BatchOutput, batch_output, custom_id
from cbtui.cli.console import (
    Look,
    Progress,
    ReportConsole,
    badge,
    json_text,
    report_console,
    write_line,
)
from cbtui.cli.models import loaded_model
from cbtui.cli.recording import recording
from cbtui.cli.result import ResultLine
from cbtui.cli.sources import Complaints, FileOptions, Workload, workload_of
from cbtui.looks.tokens import prose
from cbtui.metrics_http import serving_metrics
from cbtui.telling.alone import counted, verdict_words
from cbtui.telling.naming import letter_of
from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.live.feed import Entry, Feed
from engine.prometheus import MetricsServer
from engine.runner import ModelInfo, ModelRunner, Ready
from engine.session import config_for, drain, encode, submit, token_bytes_of
from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import Record, StepRecord, Verification
from engine.stream.trace_files import TraceRecorder, header_of
from engine.verify.verifier import UNHURRIED_S, Verifier, check_all
from engine.worker.wire import RunnerSpec

#: How often a model process that died is started again within one run.
RESTARTS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of `cbtui run`, checked.

    Attributes:
        runner, config: the model, the limits and the mode.
        file: the requests.
        default_max_tokens: output tokens at most of a request that does not say.
        asked: what a request is asked with where its line does not say.
        seed: of the first request, the next ones count up; None: the engine picks one for each.
        raw: no chat template.
        as_json: a JSON object a line.
        output: a file for the answers in the form of OpenAI's batches; `-` is standard output.
        record: a trace file to write.
        metrics: a port to serve metrics on; None: they are not served.
        verify: once all have ended, hold each greedy one against the same request run alone.
    """

    runner: RunnerSpec
    config: EngineConfig
    file: FileOptions
    default_max_tokens: int = 64
    asked: PromptRequest = field(default_factory=lambda: PromptRequest(prompt=""))
    seed: int | None = None
    raw: bool = False
    as_json: bool = False
    output: str | None = None
    record: Path | None = None
    metrics: int | None = None
    verify: bool = False


def run_prompts(options: RunOptions) -> int:
    """Run the prompts and print each result as it ends.

    Returns:
        The exit code: 1 if a line was bad, or a request was refused or ended in error.

    Raises:
        CommandError, RunnerError: nothing can be run.
    """
    workload = workload_of(options.file, options.default_max_tokens, options.asked)
    complaints = Complaints(workload.name)
    with (
        batch_output(options.output) as answers,
        recording(options.record, complaints) as recorder,
        serving_metrics(options.metrics) as metrics,
    ):
        complaints.add_bad(workload.bad)
        if answers is not None:
            for bad in workload.bad:
                answers.refused(bad.label or f"{bad.unit}-{bad.line}", str(bad))
        if workload.requests:
            progress = Progress()
            with loaded_model(options.runner, progress) as (runner, ready):
                _run(
                    _Running(options, workload, complaints, progress, answers, recorder, metrics),
                    runner,
                    ready,
                )
    return 1 if complaints.count else 0


@dataclass(frozen=True, slots=True)
class _Running:
    """What a run reads and where it writes."""

    options: RunOptions
    workload: Workload
    complaints: Complaints
    progress: Progress
    answers: BatchOutput | None
    recorder: TraceRecorder | None
    metrics: MetricsServer | None

    def refuse(self, entry: Entry, why: str) -> None:
        """Say that a request cannot be run."""
        self.complaints.add(f"request {entry.number} {why}")
        if self.answers is not None:
            self.answers.refused(custom_id(entry), why)

    def differs(self, entry: Entry, verdict: Verification, ledger: Ledger) -> None:
        """Say what came of checking a request alone, where it is not simply the same."""
        words = f"request {entry.number} alone: {verdict_words(verdict, ledger)}"
        if verdict.verdict in ("differs", "unchecked"):
            self.complaints.add(words)
        else:
            print(f"cbtui: {words}", file=sys.stderr)


def _completed(
    requests: Sequence[PromptRequest], options: RunOptions, info: ModelInfo
) -> list[PromptRequest]:
    completed = []
    for index, request in enumerate(requests):
        if request.seed is None and options.seed is not None:
            request = msgspec.structs.replace(request, seed=options.seed + index)
        completed.append(request.through_template(info.has_chat_template and not options.raw))
    return completed


def _run(running: _Running, runner: ModelRunner, ready: Ready) -> None:
    options, progress = running.options, running.progress
    engine = Engine(
        config_for(options.config, ready.info),
        runner,
        ready.info,
        token_bytes=token_bytes_of(ready.info),
        epoch=ready.epoch,
    )
    requests = _completed(running.workload.requests, options, ready.info)
    entries = []
    for number, (request, prompt) in enumerate(zip(requests, encode(runner, requests), strict=True), 1):
        entry = Entry(number, request, prompt)
        if prompt.error:
            running.refuse(entry, f"cannot be encoded: {prompt.error}")
        else:
            entries.append(entry)
    feed = Feed(entries, options.file.arrivals, submit, on_refused=running.refuse)
    say = _sayer(running, ready.info)
    ledger = Ledger(kept=0)
    if running.recorder is not None:
        running.recorder.begin(header_of(ready.info, engine.config))
    verifier = Verifier(runner, most_s=UNHURRIED_S)
    readers: list[Callable[[Record], None]] = [ledger.apply]
    if running.metrics is not None:
        readers.append(running.metrics.reader(ready.info.name))
    if options.verify:
        readers.append(verifier.apply)
    if running.recorder is not None:
        readers.append(running.recorder.write)
    told: set[str] = set()
    for record in drain(engine, restarts=RESTARTS, feed=feed):
        for read in readers:
            read(record)
        for finish in record.events.finished:
            progress.clear()
            entry = feed.entered[finish.request_id]
            result = _result(ledger[finish.request_id], ledger, entry)
            say(entry, result)
            if result.error or result.finish_reason in ("error", "ignored"):
                running.complaints.add(
                    f"request {entry.number} ended as {result.finish_reason}: {result.error}"
                )
            told.add(finish.error)
        for error in [error for error in record.events.errors if error not in told]:
            told.add(error)
            running.complaints.add(error)
        # What has been said need not be kept.
        ledger.forget(record.step + 1)
        if isinstance(record, StepRecord):
            done = ledger.num_finished
            progress.say(f"step {record.step:,}, {done} of {len(entries)} requests done", at_once=False)
    progress.clear()
    if options.verify:
        for verdict in _verified(verifier, engine, readers, progress):
            if verdict.verdict != "same":
                running.differs(feed.entered[verdict.request_id], verdict, ledger)


def _verified(
    verifier: Verifier, engine: Engine, readers: Sequence[Callable[[Record], None]], progress: Progress
) -> list[Verification]:
    """Check what has ended alone, and say how many are the same."""
    verifier.begin(engine.epoch, engine.info.dtype)
    total = len(verifier)
    verdicts = []
    for verdict in check_all(verifier):
        verdicts.append(verdict)
        engine.note_verified(verdict)
        record = engine.take_quiet_record()
        assert record is not None
        for read in readers:
            read(record)
        progress.say(f"alone: {len(verdicts)} of {total} requests checked")
    progress.clear()
    said = counted(verdicts) or "nothing: no greedy request has made a token"
    print(f"cbtui: checked alone: {said}", file=sys.stderr)
    return verdicts


def _sayer(running: _Running, info: ModelInfo) -> Callable[[Entry, ResultLine], None]:
    """What is done with a finished request."""
    if (answers := running.answers) is not None:
        return lambda entry, result: answers.ended(entry, result, info.name)
    if running.options.as_json:
        return lambda entry, result: write_line(json_text(result))
    console, look = report_console()
    return lambda entry, result: _print(result, console, look)


def _result(story: RequestStory, ledger: Ledger, entry: Entry) -> ResultLine:
    finish = story.finish
    assert finish is not None
    return ResultLine(
        index=entry.number - 1,
        label=story.request.label,
        prompt=story.request.prompt_text,
        finish_reason=finish.reason,
        prompt_tokens=len(story.request.prompt_token_ids),
        output_tokens=len(story.output_token_ids),
        text=ledger.output_text(story),
        token_ids=tuple(story.output_token_ids),
        ttft_s=story.ttft_s,
        e2e_s=story.e2e_s,
        error=finish.error,
    )


def _print(result: ResultLine, console: ReportConsole, look: Look) -> None:
    name = Text(f"[{letter_of(result.index)}]") if look.is_plain else badge(result.index)
    count = result.output_tokens
    head = name.append(f" {result.finish_reason}, {count} token{'' if count == 1 else 's'}", "bold")
    if result.e2e_s is not None and count:
        head.append(f", {result.e2e_s:.2f} s", "dim")
    head.append(f"  {prose(result.label) + ': ' if result.label else ''}", "dim")
    head.append(look.quoted(result.prompt, max(12, look.width - head.cell_len)), "dim")
    console.print(head)
    if result.text:
        console.print(Text(result.text.strip("\n")))
    console.print()
