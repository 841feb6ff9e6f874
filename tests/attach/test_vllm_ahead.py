"""A vLLM with steps in flight: asynchronous scheduling, or a pipeline of several stages."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path
from typing import Any

import fake_vllm
import pytest
from fake_vllm import Ahead, Request, config
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.widgets.lines import LinesView
from engine.attach import vllm_lines
from engine.attach.vllm_fold import VllmFold
from engine.stream.ledger import Ledger
from engine.stream.records import STOP_OR_ABORT, Record, StepRecord
from engine.stream.soundness import Soundness
from tests.app.replay import Feeder, drive

PATIENCE_S = 20.0


@pytest.fixture
def scheduler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    fake_vllm.install(monkeypatch)
    monkeypatch.setenv("CBTUI_VLLM_STREAM", f"unix:{folder / 'run' / 's'}")
    module = importlib.import_module("cbtui_vllm.scheduler")
    return module.RecordingScheduler(config(async_scheduling=True), kv_cache_config=None)


class Reader:
    """Reads a server's socket to its end, into records."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(str(folder / "run" / "s"))
        self._file = self._socket.makefile("rb")
        self._fold = VllmFold()
        self._fold.take(vllm_lines.decode(self._file.readline()))

    def records(self) -> list[Record]:
        with self._socket, self._file:
            return [record for line in self._file for record in self._fold.take(vllm_lines.decode(line))]


def wait_for_reader(scheduler: Any) -> None:
    while not scheduler._recorder._stream.wants_key:
        pass


def steps_of(records: list[Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]


def ledger_of(records: list[Record]) -> Ledger:
    ledger, soundness = Ledger(), Soundness()
    for record in records:
        assert not soundness.flaw(record)
        ledger.apply(record)
    return ledger


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_reader_that_comes_while_steps_are_in_flight_follows_from_the_next_one(
    scheduler: Any, folder: Path, before: int, depth: int
) -> None:
    for number in range(3):
        scheduler.add_request(Request(f"r{number}", [number] * 3, 6 + number))
    engine = Ahead(scheduler, depth)
    for _ in range(before):
        engine.turn()
    reader = Reader(folder)
    wait_for_reader(scheduler)
    engine.drain()
    scheduler.shutdown()
    records = reader.records()
    steps = steps_of(records)
    first = before + depth if before else 1
    assert [step.step for step in steps] == list(range(first, steps[-1].step + 1))
    assert not any(step.missed for step in steps)
    for number in range(3):
        story = ledger_of(records)[f"r{number}"]
        assert story.output_token_ids == list(range(3, 9 + number))
        assert story.finish is not None and story.finish.reason == "length"


def test_a_row_that_was_scheduled_before_its_request_chose_to_stop_is_dead_work(
    scheduler: Any, folder: Path
) -> None:
    reader = Reader(folder)
    wait_for_reader(scheduler)
    scheduler.add_request(Request("stops", [1, 2, 3], 9, stops_after=2))
    scheduler.add_request(Request("goes on", [4, 5], 4))
    scheduler.add_request(Request("next", [6], 2))
    Ahead(scheduler).drain()
    scheduler.shutdown()
    records = reader.records()
    steps = steps_of(records)
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    second, third, fourth = steps[1:4]
    assert [(one.request_id, one.reason) for one in second.events.finished] == [("stops", "stop")]
    assert not second.events.released
    # Its row stands where it really lay, with the token it stopped at.
    assert [(one.request_id, one.kind, one.token_ids) for one in third.segments] == [
        ("stops", "dead", (4,)),
        ("goes on", "decode", (3,)),
    ]
    assert third.segments[0].sampled is None
    assert (third.tokens.dead, third.tokens.decode) == (1, 1)
    assert [(slot.request_id, slot.held) for slot in third.slots] == [("stops", True), ("goes on", False)]
    assert [one.request_id for one in third.events.released] == ["stops"]
    assert [(one.request_id, one.slot) for one in fourth.events.admitted] == [("next", 0)]
    ledger = ledger_of(records)
    assert [len(ledger[name].output_token_ids) for name in ("stops", "goes on", "next")] == [2, 4, 2]
    assert ledger["stops"].dead_steps == 1


def test_the_screen_says_why_a_row_is_dead_where_no_wave_holds_it(scheduler: Any, folder: Path) -> None:
    reader = Reader(folder)
    wait_for_reader(scheduler)
    scheduler.add_request(Request("stops", [1, 2, 3], 9, stops_after=2))
    scheduler.add_request(Request("goes on", [4, 5], 4))
    Ahead(scheduler, depth=3).drain()
    scheduler.shutdown()
    feeder = Feeder()
    feeder.play(reader.records(), upto=3)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert "slot held for one more row" in panel(app, "#slots")
        await pilot.press("escape", "left_square_bracket")
        words = " ".join(panel(app, "#happened").split())
        assert "Slot 0 is dead: A ended at step 2, when its next row had been" in words
        assert "wave" not in words and "continuous mode" not in words
        await pilot.press("k")
        held = [plain(line) for line in app.screen.query_one(LinesView).visible_lines()]
        assert any("held for one more row" in line for line in held)

    drive(feeder, script)


def panel(app: CbtuiApp, name: str) -> str:
    return "\n".join(plain(line) for line in app.main.query_one(name, LinesView).visible_lines())


def test_a_request_ended_from_outside_leaves_after_its_last_row(scheduler: Any, folder: Path) -> None:
    reader = Reader(folder)
    wait_for_reader(scheduler)
    scheduler.add_request(Request("gone", [1, 2, 3], 9))
    scheduler.add_request(Request("stays", [4, 5], 4))
    engine = Ahead(scheduler)
    engine.turn()
    scheduler.finish_requests(["gone"], None)
    engine.drain()
    scheduler.shutdown()
    records = reader.records()
    assert [step.step for step in steps_of(records)] == [1, 2, 3, 4]
    ends = [(one.request_id, one.reason) for record in records for one in record.events.finished]
    assert ends == [("gone", STOP_OR_ABORT), ("stays", "length")]
    ledger_of(records)
