"""`cbtui run`: prompts from a file or a pipe through the engine, each result printed as it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.text import Text

from cbtui.cli.console import (
    CommandError,
    Look,
    Progress,
    ReportConsole,
    badge,
    report_console,
    write_line,
)
from cbtui.cli.models import loaded_model
from cbtui.cli.sources import read_bytes, read_prompts
from cbtui.naming import letter_of
from engine.commands import PromptRequest
from engine.config import EngineConfig
from engine.engine import Engine
from engine.runner import ModelInfo
from engine.session import config_for, drain, encode, submit, token_bytes_of
from engine.stream.comparison import output_text
from engine.stream.ledger import Ledger, RequestStory
from engine.stream.records import StepRecord
from engine.worker.wire import RunnerSpec
from engine.workload import BadLine

#: How often a model process that died is started again within one run.
RESTARTS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of `cbtui run`, checked.

    Attributes:
        runner, config: the model, the limits and the mode.
        source: a file, or `-`: standard input.
        max_tokens: output tokens at most of every request; None: what its line says, or `default_max_tokens`.
        temperature: 0 is greedy.
        top_k, top_p, stop: see `SamplingParams`.
        seed: of the first request, the next ones count up; None: the engine picks one for each.
        raw: no chat template.
        ignore_eos: go on past end-of-sequence tokens.
        as_json: a JSON object a line.
    """

    runner: RunnerSpec
    config: EngineConfig
    source: str
    max_tokens: int | None = None
    default_max_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    raw: bool = False
    ignore_eos: bool = False
    as_json: bool = False


class ResultLine(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request, as `--json` prints it. Seconds are engine seconds, from arrival.

    `index` counts the requests from 0, `finish_reason` is stop, length, error or ignored.
    """

    index: int
    label: str
    prompt: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    text: str
    token_ids: tuple[int, ...]
    ttft_s: float | None
    e2e_s: float | None
    error: str


def run_prompts(options: RunOptions) -> int:
    """Run the prompts and print each result as it ends.

    Returns:
        The exit code: 1 if a line was bad, or a request was refused or ended in error.

    Raises:
        CommandError, RunnerError: nothing can be run.
    """
    name, data = read_bytes(options.source)
    lines = read_prompts(data, options.max_tokens, options.default_max_tokens)
    if not lines:
        raise CommandError(f"{name} holds no prompts: one a line, or JSON Lines with `prompt`")
    complaints = Complaints(name)
    for line in lines:
        if isinstance(line, BadLine):
            complaints.add(str(line))
    requests = [line for line in lines if isinstance(line, PromptRequest)]
    if requests:
        progress = Progress()
        with loaded_model(options.runner, progress) as (runner, ready):
            engine = Engine(
                config_for(options.config, ready.info),
                runner,
                ready.info,
                token_bytes=token_bytes_of(ready.info),
                epoch=ready.epoch,
            )
            _run(engine, _completed(requests, options, ready.info), complaints, progress, options.as_json)
    return 1 if complaints.count else 0


class Complaints:
    """Says on standard error what could not be run, and counts it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.count = 0

    def add(self, text: str) -> None:
        """Say one thing."""
        self.count += 1
        print(f"cbtui: {self._name}, {text}", file=sys.stderr)


def _completed(
    requests: Sequence[PromptRequest], options: RunOptions, info: ModelInfo
) -> list[PromptRequest]:
    most = options.max_tokens
    return [
        msgspec.structs.replace(
            request,
            max_tokens=request.max_tokens if most is None else min(request.max_tokens, most),
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            stop=options.stop,
            seed=None if options.seed is None else options.seed + index,
            ignore_eos=options.ignore_eos,
            chat=info.has_chat_template and not options.raw,
        )
        for index, request in enumerate(requests)
    ]


def _run(
    engine: Engine,
    requests: Sequence[PromptRequest],
    complaints: Complaints,
    progress: Progress,
    as_json: bool,
) -> None:
    for number, (request, prompt) in enumerate(
        zip(requests, encode(engine.runner, requests), strict=True), 1
    ):
        if prompt.error:
            complaints.add(f"request {number} cannot be encoded: {prompt.error}")
        else:
            submit(engine, request, prompt)
    console, look = report_console()
    ledger = Ledger()
    for record in drain(engine, restarts=RESTARTS):
        ledger.apply(record)
        for finish in record.events.finished:
            progress.clear()
            story = ledger[finish.request_id]
            result = _result(story, ledger)
            if as_json:
                write_line(msgspec.json.encode(result).decode())
            else:
                _print(result, console, look)
            if result.error or result.finish_reason in ("error", "ignored"):
                complaints.add(f"request {story.index + 1} ended as {result.finish_reason}: {result.error}")
        if isinstance(record, StepRecord):
            done = len(ledger.finished)
            progress.say(
                f"step {record.step:,}, {done} of {len(ledger.stories)} requests done", at_once=False
            )
    progress.clear()


def _result(story: RequestStory, ledger: Ledger) -> ResultLine:
    finish = story.finish
    assert finish is not None
    return ResultLine(
        index=story.index,
        label=story.request.label,
        prompt=story.request.prompt_text,
        finish_reason=finish.reason,
        prompt_tokens=len(story.request.prompt_token_ids),
        output_tokens=len(story.output_token_ids),
        text=output_text(ledger, story),
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
    head.append(f"  {result.label + ': ' if result.label else ''}", "dim")
    head.append(look.quoted(result.prompt, max(12, look.width - head.cell_len)), "dim")
    console.print(head)
    if result.text:
        console.print(Text(_safe(result.text.strip("\n"), look)))
    console.print()


def _safe(text: str, look: Look) -> str:
    """A model's text for a terminal: line breaks stay, control characters go. A pipe gets all of it."""
    if look.is_plain:
        return text
    return "".join(c for c in text if c in "\n\t" or c.isprintable())
