from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runner import Died, Encoded, ForwardError, Loading, PromptInput, Ready, RunnerDied, RunnerError
from engine.worker import Timings, WorkerRunner
from engine.worker.wire import PROTOCOL_VERSION
from tests.worker.harness import LIMIT_S, SHAPE, Events, is_gone, make_it_ready, mood, plan_of, until

Make = Callable[..., WorkerRunner]
QUICK_STALL = Timings(heartbeat_s=0.1, stall_s=1.0, load_stall_s=1.0)


def assert_closes(runner: WorkerRunner) -> None:
    """Closing comes to its end although what is under way never would."""
    closing = threading.Thread(target=runner.close, daemon=True)
    closing.start()
    closing.join(LIMIT_S)
    assert not closing.is_alive()


def run_in_thread(runner: WorkerRunner, name: str) -> tuple[threading.Thread, list[BaseException]]:
    """A run under way, and the list its error will be in."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            runner.run(mood(name))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive()
    return thread, errors


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exit", "the model process ended with exit status 3; its log ends: out of cheese"),
        ("kill_itself", r"the model process was ended by SIGKILL \(by hand, or because memory ran out\)"),
        ("raise_runner_died", "exit status 1; its log ends: the device is lost$"),
        ("write_garbage", r"answered rubbish \(not a frame: b'hello, i'\)"),
        ("write_newer_version", f"protocol version 99, not {PROTOCOL_VERSION}"),
        ("miss_a_sample", "0 samples for 1 rows"),
    ],
)
def test_a_death_in_a_step_says_what_happened(make_ready: Make, name: str, words: str) -> None:
    runner = make_ready()
    pid = runner.pid
    with pytest.raises(RunnerDied, match=words):
        runner.run(mood(name))
    assert pid is not None and is_gone(pid)
    with pytest.raises(RunnerDied, match=words):
        runner.run(plan_of(1, step=2))
    assert not Events(runner).of(Died)


def test_a_death_between_steps_is_an_event(make_ready: Make) -> None:
    runner = make_ready()
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGKILL)
    events = Events(runner)
    death = events.wait(Died)
    assert death.epoch == 1 and "SIGKILL" in death.message
    with pytest.raises(RunnerDied):
        runner.open_arena(0, SHAPE)
    assert len(events.of(Died)) == 1


def test_a_stall_in_a_step_is_a_death(make_ready: Make) -> None:
    runner = make_ready(timings=QUICK_STALL)
    pid = runner.pid
    with pytest.raises(RunnerDied, match="no sign of life for 1 s"):
        runner.run(mood("stop_itself"))
    assert pid is not None and is_gone(pid)


def test_a_stall_between_steps_is_a_death(make_ready: Make) -> None:
    runner = make_ready(timings=QUICK_STALL)
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGSTOP)
    assert "no sign of life" in Events(runner).wait(Died).message


def test_after_a_death_it_starts_again_with_the_next_epoch_and_no_arenas(make_ready: Make) -> None:
    runner = make_ready()
    for epoch in (2, 3):
        with pytest.raises(RunnerDied):
            runner.run(mood("kill_itself", epoch=epoch - 1))
        runner.start()
        assert Events(runner).wait(Ready, 1).epoch == epoch
        with pytest.raises(ForwardError, match="epoch"):
            runner.run(plan_of(1, epoch=epoch - 1))
        with pytest.raises(ForwardError, match="not open"):
            runner.run(plan_of(1, epoch=epoch))
        runner.open_arena(0, SHAPE)
        assert runner.run(plan_of(1, epoch=epoch)).epoch == epoch


def test_prompts_of_an_earlier_epoch_are_answered_only_if_asked_again(make_ready: Make) -> None:
    runner = make_ready()
    events = Events(runner)
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGSTOP)
    runner.encode(1, [PromptInput("a")])
    os.kill(runner.pid, signal.SIGKILL)
    events.wait(Died)
    runner.encode(2, [PromptInput("b")])
    runner.start()
    events.wait(Ready)
    runner.encode(1, [PromptInput("a")])
    runner.encode(3, [PromptInput("c")])
    events.wait(Encoded, 2)
    assert [answer.ticket for answer in events.of(Encoded)] == [1, 3]


def test_starting_a_live_worker_again_replaces_it(make_ready: Make) -> None:
    runner = make_ready()
    first = runner.pid
    make_it_ready(runner)
    assert first is not None and is_gone(first)
    assert runner.run(plan_of(1, epoch=2)).epoch == 2
    assert not Events(runner).of(Died)


def test_a_dead_worker_leaves_no_descriptors(make_ready: Make) -> None:
    runner = make_ready()
    before = len(os.listdir("/dev/fd"))
    for epoch in (1, 2, 3):
        with pytest.raises(RunnerDied):
            runner.run(mood("kill_itself", epoch=epoch))
        make_it_ready(runner)
    assert len(os.listdir("/dev/fd")) == before
    runner.close()
    assert len(os.listdir("/dev/fd")) == before - 2


@pytest.mark.parametrize("name", ["sleep_forever", "spin_forever", "ignore_term_forever"])
def test_closing_does_not_wait_for_a_forward(make_ready: Make, name: str) -> None:
    runner = make_ready()
    pid = runner.pid
    thread, errors = run_in_thread(runner, name)
    assert_closes(runner)
    assert pid is not None and is_gone(pid)
    thread.join(LIMIT_S)
    assert isinstance(errors[0], RunnerDied) and "closed" in str(errors[0])


def test_closing_does_not_wait_for_a_load_and_ends_an_installer_too(make_worker: Make) -> None:
    runner = make_worker(load="installer")
    runner.start()
    events = Events(runner)
    installer = int(events.wait(Loading, 2).stage.split()[1])
    pid = runner.pid
    assert_closes(runner)
    assert pid is not None and is_gone(pid)
    until(lambda: is_gone(installer))
    assert not events.of(Died)


def test_closing_a_worker_that_hangs_ends_its_installer_too(make_worker: Make) -> None:
    runner = make_worker(load="installer")
    runner.start()
    installer = int(Events(runner).wait(Loading, 2).stage.split()[1])
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGSTOP)
    assert_closes(runner)
    until(lambda: is_gone(installer))


def test_an_installer_does_not_hide_the_death_of_the_worker(make_worker: Make) -> None:
    runner = make_worker(load="installer_then_killed")
    runner.start()
    events = Events(runner)
    installer = int(events.wait(Loading, 2).stage.split()[1])
    try:
        assert "SIGKILL" in events.wait(Died).message
    finally:
        os.kill(installer, signal.SIGKILL)


def test_closing_does_not_wait_for_a_full_pipe(make_ready: Make) -> None:
    runner = make_ready()
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGSTOP)
    # It reads nothing any more: what waited for it would never come back.
    runner.encode(1, [PromptInput("x" * 10_000_000)])
    runner.poll()
    assert_closes(runner)


def test_closing_at_once_twice_and_before_starting_is_allowed(make_worker: Make) -> None:
    runner = make_worker()
    runner.start()
    assert_closes(runner)
    assert_closes(runner)
    assert runner.poll() == [] or all(isinstance(event, Loading) for event in runner.poll())
    never_started = make_worker()
    never_started.close()
    with pytest.raises(RunnerError, match="closed"):
        never_started.start()


def test_closing_from_two_threads_at_once_is_allowed(make_ready: Make) -> None:
    runner = make_ready()
    threads = [threading.Thread(target=runner.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    with pytest.raises(RunnerDied, match="closed"):
        runner.run(plan_of(1))


PARENT = """
import sys, time
from pathlib import Path
from engine.worker import RunnerSpec, Timings, WorkerRunner
from tests.worker.harness import Events, make_it_ready, mood
phase, log = sys.argv[1], Path(sys.argv[2])
load = "forever" if phase == "load" else phase if phase == "installer" else ""
spec = RunnerSpec(factory="tests.worker.fake_models:Moody", options={"load": load})
# End-of-file alone must do: a heartbeat into a broken pipe would end the worker too.
runner = WorkerRunner(spec, log_path=log, timings=Timings(heartbeat_s=600.0))
if load:
    from engine.runner import Loading
    runner.start()
    stage = Events(runner).wait(Loading, 2).stage
    print(runner.pid, stage.split()[1] if phase == "installer" else runner.pid, flush=True)
    time.sleep(600)
make_it_ready(runner)
print(runner.pid, runner.pid, flush=True)
if phase == "idle":
    time.sleep(600)
runner.run(mood(phase))
"""


@pytest.mark.parametrize("phase", ["idle", "sleep_forever", "spin_forever", "load", "installer"])
def test_a_killed_app_leaves_no_orphan(phase: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script), phase, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and not any(map(is_gone, pids))
        parent.kill()
    for pid in pids:
        until(lambda pid=pid: is_gone(pid))
