from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runner import Died, Encoded, LoadFailed, Loading, PromptInput, Ready
from engine.worker import RunnerSpec, WorkerRunner
from tests.worker.harness import Events, is_gone, until

Make = Callable[..., WorkerRunner]


def test_progress_comes_while_it_loads_and_ready_carries_the_epoch(make_worker: Make) -> None:
    runner = make_worker()
    runner.start()
    events = Events(runner)
    ready = events.wait(Ready)
    assert (ready.epoch, ready.info.name) == (1, "moody")
    assert events.seen == [Loading("making the runner"), ready]


def test_progress_is_seen_before_loading_ends(make_worker: Make) -> None:
    runner = make_worker(load="forever")
    runner.start()
    events = Events(runner)
    events.wait(Loading, 2)
    assert events.seen[-1] == Loading("never ends", 1, 3, "MB", "nothing")


def test_thousands_of_reports_become_a_few_and_the_last(make_worker: Make) -> None:
    runner = make_worker(load="many_reports")
    runner.start()
    events = Events(runner)
    events.wait(Ready)
    reports = [event for event in events.of(Loading) if event.stage == "reading"]
    assert len(reports) < 500 and reports[-1].done == 5000


@pytest.mark.parametrize(
    ("load", "failure"),
    [
        ("fail", LoadFailed("the file is broken", "read", "cbtui setup")),
        ("fail_plainly", LoadFailed("KeyError: 'lm_head'", "load")),
        ("fail_by_event", LoadFailed("no such model", "find", "cbtui models")),
    ],
)
def test_a_failed_load_says_why_and_its_process_ends(
    make_worker: Make, load: str, failure: LoadFailed
) -> None:
    runner = make_worker(load=load)
    runner.start()
    pid = runner.pid
    events = Events(runner)
    assert events.wait(LoadFailed) == failure
    assert pid is not None
    until(lambda: is_gone(pid))
    assert not events.of(Died)
    runner.start()
    assert events.wait(LoadFailed, 2) == failure
    assert runner.epoch == 2


def test_a_factory_that_does_not_exist_is_a_failed_load(log_path: Path) -> None:
    runner = WorkerRunner(RunnerSpec(factory="tests.worker.fake_models:Nobody"), log_path=log_path)
    runner.start()
    assert "Nobody" in Events(runner).wait(LoadFailed).message
    runner.close()


def test_a_process_that_cannot_be_started_is_a_failed_load(
    make_worker: Make, monkeypatch: pytest.MonkeyPatch, log_path: Path
) -> None:
    log_path.parent.mkdir()
    log_path.mkdir()
    runner = make_worker()
    before = len(os.listdir("/dev/fd"))
    runner.start()
    failure = Events(runner).wait(LoadFailed)
    assert failure.stage == "start" and "cannot be started" in failure.message
    assert len(os.listdir("/dev/fd")) == before


def test_a_death_while_loading_is_a_death(make_worker: Make) -> None:
    runner = make_worker(load="exit")
    runner.start()
    death = Events(runner).wait(Died)
    assert death == Died("the model process ended with exit status 3; its log ends: disk on fire", 1)


def test_prompts_asked_while_loading_are_answered_after_ready(make_worker: Make) -> None:
    runner = make_worker()
    runner.start()
    runner.encode(1, [PromptInput("a")])
    events = Events(runner)
    events.wait(Encoded)
    assert [type(event) for event in events.seen[-2:]] == [Ready, Encoded]


def test_what_the_worker_starts_sees_the_callers_own_import_path(
    make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    first = make_worker()
    first.start()
    assert Events(first).wait(Ready).info.source == "/somewhere/else"
    monkeypatch.delenv("PYTHONPATH")
    second = make_worker()
    second.start()
    assert Events(second).wait(Ready).info.source == ""
