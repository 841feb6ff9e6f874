"""The engine loop over a worker: what a user sees of a model process, killed or not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from engine.config import EngineConfig
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, PromptRequest, Submit
from engine.live.loop import EngineLoop
from engine.runner import ModelRunner
from engine.stream.records import StepRecord
from engine.worker import WorkerRunner
from tests.worker.harness import LIMIT_S, until

Make = Callable[..., WorkerRunner]
SIX = tuple(PromptRequest(prompt=word, max_tokens=40, seed=3) for word in ("a", "bc", "def", "g", "hi", "j"))


def outputs(
    runner: ModelRunner, meanwhile: Callable[[History], None] = lambda history: None
) -> dict[str, list[int]]:
    """Every request's output tokens, from the records of a loop in a thread."""
    commands, mailbox, history = CommandQueue(), Mailbox(), History()
    loop = EngineLoop(EngineConfig(), runner, commands=commands, mailbox=mailbox, history=history)
    thread = threading.Thread(target=loop.run)
    thread.start()
    commands.put(Submit(SIX))
    meanwhile(history)
    until(lambda: mailbox.latest().status == "idle" and mailbox.latest().step > 0)
    commands.put(Close())
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    tokens: dict[str, list[int]] = {}
    for record in history.since(0)[1]:
        if isinstance(record, StepRecord):
            for segment in record.segments:
                if segment.sampled is not None:
                    tokens.setdefault(segment.request_id, []).append(segment.sampled)
    return tokens


def test_a_killed_worker_changes_no_output_that_goes_on(make_worker: Make) -> None:
    undisturbed = outputs(make_worker(factory="tests.worker.fake_models:slow_fake"))
    assert [len(ids) for ids in undisturbed.values()] == [40] * 6
    runner = make_worker(factory="tests.worker.fake_models:slow_fake")

    def stop_and_kill(history: History) -> None:
        until(lambda: history.total > 20)
        assert runner.pid is not None
        os.kill(runner.pid, signal.SIGKILL)
        until(lambda: runner.epoch == 2)

    survived = outputs(runner, stop_and_kill)
    # Those in a fatal step end in error; whoever was not in it has the text it would have had.
    whole = {request_id: ids for request_id, ids in survived.items() if len(ids) == 40}
    assert len(whole) >= 3
    assert all(undisturbed[request_id] == ids for request_id, ids in whole.items())
    assert all(undisturbed[request_id][: len(ids)] == ids for request_id, ids in survived.items())


def test_a_worker_that_was_stopped_and_goes_on_in_time_changes_nothing(make_worker: Make) -> None:
    undisturbed = outputs(make_worker(factory="tests.worker.fake_models:slow_fake"))
    runner = make_worker(factory="tests.worker.fake_models:slow_fake")

    def stop_and_go_on(history: History) -> None:
        until(lambda: history.total > 20)
        assert runner.pid is not None
        os.kill(runner.pid, signal.SIGSTOP)
        before = history.total
        time.sleep(0.3)
        assert history.total <= before + 1
        os.kill(runner.pid, signal.SIGCONT)

    assert outputs(runner, stop_and_go_on) == undisturbed
    assert runner.epoch == 1
