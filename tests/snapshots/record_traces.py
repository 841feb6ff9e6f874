"""Records the traces the snapshot tests are fed from: the default model's steps on the tutorial's six
prompts, on one of 512 tokens, and on strange texts.

    python -m tests.snapshots.record_traces [NAME …]

Run again only when records change their form. Time is made up (a fixed cost a step and a token), so that a
busy machine leaves no mark in the pictures; every token is the model's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import MadeUp, PromptRequest
from engine.runner import ModelInfo
from engine.scheduling.modes import MODES
from engine.session import drain, encode, submit, token_bytes_of, wait_until_ready
from engine.step.plan import Plan, Reply
from engine.stream.records import SCHEMA_VERSION, Record, TraceHeader
from engine.stream.trace import TraceWriter
from engine.worker import RunnerSpec, WorkerRunner
from engine.workload import tutorial_workload

DATA = Path(__file__).parent.parent / "data"
#: Output tokens of the six: about a fifth of the tutorial's, so that a trace stays small.
CAPS = (6, 20, 48, 12, 30, 9)
#: A run that begins continuous and is switched to static after so many steps; six more are kept.
SWITCHED, SWITCH_AFTER = "switched", 8
#: A run with so few KV blocks that somebody has to give way; it ends some steps after that.
PREEMPTED, FEW_BLOCKS = "preempted", 4
#: Two decode when a prompt of 512 tokens comes in; later one that begins like it, and shares its blocks.
LONG, LONG_TOKENS, LONG_AFTER, TWIN_AFTER, LONG_STEPS = "long", 512, 5, 8, 14
#: A prompt of every kind of text that has ever broken a screen.
STRANGE, STRANGE_STEPS = "strange", 4
STRANGE_TEXTS = (
    "日本語のテキストと漢字",
    "🙂👍🏽👨‍👩‍👧 emoji 🇳🇿",
    "שלום עולם مرحبا",
    "\x1b[2J\x07\t\n\r\x7f control \u202e\u2066",
    "[bold]markup[/] [link=x]@click=app.quit[/link] [",
    "e\u0301\u0301\u0301 combining \u0301",
    "long " * 800,
)
STEP_S, TOKEN_S = 0.05, 0.0008


class TimedRunner(WorkerRunner):
    """The model, and a clock that only it moves."""

    now_s = 0.0

    def run(self, plan: Plan) -> Reply:
        reply = super().run(plan)
        forward_s = STEP_S + TOKEN_S * sum(len(row.token_ids) for row in plan.rows)
        self.now_s += forward_s
        return msgspec.structs.replace(reply, forward_s=forward_s, sample_s=0.001)


def main() -> None:
    runner = TimedRunner(RunnerSpec())
    try:
        info = wait_until_ready(runner).info
        for name in sys.argv[1:] or (*MODES, SWITCHED, PREEMPTED, LONG, STRANGE):
            header = TraceHeader(SCHEMA_VERSION, "SmolLM2-135M-Instruct", "cpu", "float32")
            path = DATA / f"trace-{name}.jsonl"
            with path.open("wb") as file:
                writer = TraceWriter(file, header)
                for record in run_of(name, runner, info):
                    writer.write(record)
            print(path, path.stat().st_size, file=sys.stderr)
    finally:
        runner.close()


def run_of(name: str, runner: TimedRunner, info: ModelInfo) -> Iterator[Record]:
    """The records of one of the runs."""
    match name:
        case "long":
            yield from long_run(runner, info)
        case "strange":
            config = EngineConfig(max_num_seqs=len(STRANGE_TEXTS))
            engine = engine_of(config, runner, info)
            asked = [PromptRequest(prompt=text, max_tokens=9) for text in STRANGE_TEXTS]
            enter(engine, runner, asked)
            yield from islice(drain(engine), STRANGE_STEPS)
        case _:
            yield from tutorial_run(name, runner, info)


def tutorial_run(name: str, runner: TimedRunner, info: ModelInfo) -> Iterator[Record]:
    """The six in one mode, or switched, or short of blocks."""
    config = EngineConfig(mode=name if name in MODES else "continuous")
    if name == PREEMPTED:
        config = msgspec.structs.replace(config, num_blocks=FEW_BLOCKS, max_model_len=64)
    engine = engine_of(config, runner, info)
    enter(
        engine,
        runner,
        [
            msgspec.structs.replace(request, max_tokens=cap)
            for request, cap in zip(tutorial_workload(), CAPS, strict=True)
        ],
    )
    given_way = 0
    for record in drain(engine):
        yield record
        if name == SWITCHED and record.step == SWITCH_AFTER:
            engine.set_mode("static")
        if name == SWITCHED and record.step == SWITCH_AFTER + 6:
            break
        if record.events.preempted and not given_way:
            given_way = record.step
        if name == PREEMPTED and given_way and record.step == given_way + 3:
            break


def long_run(runner: TimedRunner, info: ModelInfo) -> Iterator[Record]:
    """See `LONG`."""
    engine = engine_of(EngineConfig(max_num_seqs=4, prefix_caching=True), runner, info)
    tutorial = [msgspec.structs.replace(request, max_tokens=40) for request in tutorial_workload()]
    enter(engine, runner, tutorial[:2])
    # Two prompts of one text: the second goes on where the first ends.
    long = PromptRequest(prompt="", max_tokens=8, ignore_eos=True, made_up=MadeUp(LONG_TOKENS, "long"))
    twin = msgspec.structs.replace(long, made_up=MadeUp(LONG_TOKENS + 24, "long"))
    for record in islice(drain(engine), LONG_STEPS):
        yield record
        if record.step == LONG_AFTER:
            enter(engine, runner, [long])
        if record.step == TWIN_AFTER:
            enter(engine, runner, [twin])


def engine_of(config: EngineConfig, runner: TimedRunner, info: ModelInfo) -> Engine:
    return Engine(
        config,
        runner,
        info,
        clock=EngineClock(lambda: runner.now_s),
        token_bytes=token_bytes_of(info),
        n_top=3,
    )


def enter(engine: Engine, runner: TimedRunner, requests: Sequence[PromptRequest]) -> None:
    for request, prompt in zip(requests, encode(runner, requests), strict=True):
        submit(engine, request, prompt)


if __name__ == "__main__":
    main()
