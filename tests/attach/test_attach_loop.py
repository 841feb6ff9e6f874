"""Following a source: what is shown, held back, refused, and what happens when the server goes away."""

from __future__ import annotations

import pytest
from scripted import OPENED, ScriptedSource, Watcher

from engine.attach.loop import RETRY_MOST_S, RETRY_S
from engine.attach.source import SourceLost, SourceOver
from engine.live.commands import (
    Cancel,
    Close,
    Command,
    Configure,
    Pause,
    PromptRequest,
    Restart,
    Resume,
    RunUntil,
    SetMode,
    SetSpeed,
    Step,
    Submit,
)
from engine.live.load import StartLoad, StopLoad
from engine.stream.records import Record, StepRecord
from tests.app.replay import fake_records

RECORDS = fake_records()


def one_by_one(records: list[Record]) -> ScriptedSource:
    return ScriptedSource([[record] for record in records])


def test_records_and_the_state_after_them_come_through() -> None:
    watcher = Watcher(one_by_one(RECORDS))
    watcher.turn()
    assert watcher.state.model == OPENED.info and watcher.state.provenance == OPENED.provenance
    assert watcher.state.is_attached and watcher.state.status == "idle"
    watcher.turn(2)
    assert watcher.state.status == "running" and watcher.state.slots
    watcher.turn(len(RECORDS))
    last = RECORDS[-1]
    assert isinstance(last, StepRecord)
    assert watcher.history.since(0)[1] == RECORDS
    assert watcher.state.step == last.step and not watcher.state.slots and watcher.state.status == "idle"


def test_pausing_holds_records_back_and_steps_show_them_one_by_one() -> None:
    source = one_by_one(RECORDS)
    watcher = Watcher(source, paused=True)
    watcher.turn(len(RECORDS) + 2)
    assert not watcher.steps and not source.script and watcher.state.status == "paused"
    watcher.commands.put(Step())
    watcher.turn()
    assert watcher.steps[-1] == 1
    watcher.commands.put(Step(2))
    watcher.turn()
    assert watcher.steps[-1] == 3 and watcher.state.status == "paused"
    watcher.commands.put(Resume())
    watcher.turn()
    assert watcher.history.since(0)[1] == RECORDS
    watcher.commands.put(Pause())
    watcher.turn()
    assert watcher.state.paused


def test_a_long_pause_keeps_no_more_than_the_history_would() -> None:
    watcher = Watcher(one_by_one(RECORDS), limit=3, paused=True)
    watcher.turn(len(RECORDS) + 1)
    assert watcher.history.total == len(RECORDS) - 3


def test_running_until_something_happens_pauses_there() -> None:
    watcher = Watcher(ScriptedSource([RECORDS]), paused=True)
    watcher.turn(2)
    watcher.commands.put(RunUntil("finished"))
    watcher.turn()
    assert watcher.history.since(0)[1][-1].events.finished
    assert watcher.state.paused and watcher.history.total < len(RECORDS)


@pytest.mark.parametrize(
    "command",
    [SetMode("static"), Configure(max_num_seqs=2), SetSpeed(2.0), StartLoad(1.0), StopLoad(), Cancel("x")],
)
def test_what_would_change_the_server_is_refused_in_a_sentence(command: Command) -> None:
    watcher = Watcher(ScriptedSource())
    watcher.turn()
    watcher.commands.put(command)
    watcher.turn()
    assert watcher.state.rejection is not None and len(watcher.state.rejection.message) > 10


def test_prompts_go_to_the_source_once_it_answers() -> None:
    source = ScriptedSource()
    source.openings.append(SourceLost("nobody there"))
    watcher = Watcher(source)
    watcher.commands.put(Submit((PromptRequest(prompt="too early"),)))
    watcher.turn()
    assert not source.sent and watcher.state.rejection is not None
    watcher.now = 10.0
    watcher.turn()
    watcher.commands.put(Submit((PromptRequest(prompt="now"),)))
    watcher.turn()
    assert [request.prompt for request in source.sent] == ["now"]


def test_a_lost_server_is_tried_again_with_growing_waits_and_what_was_seen_stays() -> None:
    source = ScriptedSource([[RECORDS[0]], [RECORDS[1]], SourceLost("it went away")])
    watcher = Watcher(source)
    watcher.turn(4)
    assert watcher.state.status == "failed" and watcher.state.failure is not None
    assert watcher.state.failure.message == "it went away" and watcher.state.failure.retry_s == RETRY_S
    seen = watcher.steps
    source.openings.extend([SourceLost("still not")] * 8)
    waits = []
    for _ in range(8):
        watcher.now += RETRY_MOST_S
        watcher.turn()
        waits.append(watcher.state.failure.retry_s)
    assert waits == sorted(waits) and waits[-1] == RETRY_MOST_S
    watcher.turn()
    assert source.num_opened == 1, "it waits between two tries"
    watcher.commands.put(Restart())
    watcher.turn()
    assert source.num_opened == 2 and watcher.state.failure is None and watcher.steps == seen


def test_a_source_that_is_over_says_so_and_leaves_what_was_seen() -> None:
    watcher = Watcher(ScriptedSource([RECORDS, SourceOver("the recording ends here")]))
    watcher.turn(4)
    assert (
        watcher.state.rejection is not None and watcher.state.rejection.message == "the recording ends here"
    )
    assert watcher.state.status == "idle" and watcher.state.failure is None
    assert watcher.history.since(0)[1] == RECORDS


def test_closing_lets_go_of_the_source() -> None:
    source = ScriptedSource()
    watcher = Watcher(source)
    watcher.commands.put(Close())
    watcher.loop.run()
    assert source.is_closed and watcher.state.status == "closed"
