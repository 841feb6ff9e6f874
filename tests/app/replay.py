"""Feeds a screen from records, through the mailbox and history an engine uses. No thread, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.link import Link
from cbtui.options import LaunchOptions
from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import Mailbox
from engine.live.commands import Command
from engine.live.state import EngineState
from engine.request import SamplingParams
from engine.runner import ModelInfo
from engine.session import drain
from engine.stream.records import QuietRecord, Record, StepRecord
from engine.stream.trace import read_header, read_records

DATA = Path(__file__).parent.parent / "data"
MODEL = ModelInfo(
    name="SmolLM2-135M-Instruct",
    source="SmolLM2-135M-Instruct",
    max_model_len=2048,
    vocab_size=49_152,
    has_chat_template=True,
)


def fake_records(
    caps: tuple[int, ...] = (2, 5, 8, 3), mode: str = "continuous", slots: int = 3
) -> list[Record]:
    """Records of a run on the fake runner; prompts are `prompt 0`, `prompt 1`, …; one second a step."""
    runner = FakeRunner()
    runner.start()
    ticks = iter(range(1_000_000))
    engine = Engine(
        EngineConfig(mode=mode, max_num_seqs=slots),
        runner,
        runner.info,
        clock=EngineClock(lambda: float(next(ticks))),
        token_bytes=fake_token_bytes,
        n_top=2,
    )
    for number, cap in enumerate(caps):
        text = f"prompt {number}"
        engine.add_request(list(text.encode()), SamplingParams(max_tokens=cap), prompt_text=text)
    return list(drain(engine))


def traced_records(name: str) -> list[Record]:
    """Records of a trace file in the tests' data."""
    with (DATA / name).open("rb") as file:
        read_header(file)
        return list(read_records(file))


def state_after(record: StepRecord, **changes: object) -> EngineState:
    """What an engine would publish after a step."""
    gone = {release.slot for release in record.events.released}
    slots = tuple(slot for slot in record.slots if slot.slot not in gone)
    is_idle = not slots and not record.waiting_count
    fields: dict[str, object] = {
        "status": "idle" if is_idle else "running",
        "model": MODEL,
        "mode": record.mode,
        "config": EngineConfig(
            mode=record.mode,
            max_num_seqs=record.max_num_seqs,
            max_num_batched_tokens=record.max_num_batched_tokens or 2048,  # a server may not tell
        ),
        "speed": 8.0,
        "step": record.step,
        "time_s": record.end_s,
        "slots": slots,
        "waiting_count": record.waiting_count,
        "waiting": record.waiting,
    }
    return EngineState(**(fields | changes))  # type: ignore[arg-type]  # a test's changes


class Feeder:
    """Publishes states and records into a link; versions rise by themselves."""

    def __init__(self, link: Link | None = None) -> None:
        self.link = link or Link(Mailbox(EngineState(version=1)))

    @property
    def commands(self) -> list[Command]:
        """The commands put since the last look."""
        return self.link.commands.take_all()

    def publish(self, state: EngineState) -> None:
        version = self.link.mailbox.latest().version + 1
        total = self.link.history.total
        self.link.mailbox.publish(msgspec.structs.replace(state, version=version, num_records=total))

    def ready(self, **changes: object) -> None:
        """The model is loaded and nothing was asked yet."""
        fields: dict[str, object] = {"status": "idle", "model": MODEL, "speed": 8.0}
        self.publish(EngineState(**(fields | changes)))  # type: ignore[arg-type]

    def play(self, records: Iterable[Record], upto: int | None = None, **changes: object) -> None:
        """Append records up to a step's and publish what an engine would after it."""
        last: StepRecord | None = None
        for record in records:
            if isinstance(record, StepRecord) and upto is not None and record.step > upto:
                break
            self.link.history.append(record)
            if isinstance(record, StepRecord):
                last = record
        if last is not None:
            self.publish(state_after(last, **changes))


def later(records: list[Record], steps: int, requests: int) -> list[Record]:
    """The same records as a second run of the same engine: steps and requests counted on."""

    def rename(value: object) -> object:
        if isinstance(value, str) and value.startswith("r") and value[1:].isdigit():
            return f"r{int(value[1:]) + requests}"
        if isinstance(value, list | tuple):
            return [rename(one) for one in value]
        if isinstance(value, dict):
            renamed = {key: rename(one) for key, one in value.items()}
            if "prompt_token_ids" in renamed:
                renamed["index"] = value["index"] + requests
            return renamed
        return value

    moved: list[Record] = []
    for record in records:
        plain = rename(msgspec.to_builtins(record))
        assert isinstance(plain, dict)
        plain["step"] += steps
        moved.append(msgspec.convert(plain, StepRecord | QuietRecord))
    return moved


Script = Callable[[CbtuiApp, Pilot[None]], Awaitable[None]]


def drive(
    feeder: Feeder,
    script: Script,
    size: tuple[int, int] = (160, 50),
    options: LaunchOptions | None = None,
) -> CbtuiApp:
    """Run an app without a terminal and let a script press its keys."""
    app = CbtuiApp(feeder.link, options)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())
    return app
