from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.fake import FakeRunner
from engine.runner import Died, Encoded, ForwardError, PromptInput, RunnerDied, RunnerError
from engine.step.check import Check
from engine.step.geometry import ArenaShape
from engine.verify.served import pieces
from engine.worker import Timings, WorkerRunner
from engine.worker.channel import Channel
from engine.worker.wire import MAX_FRAME_BYTES
from tests.worker.harness import SHAPE, Events, make_it_ready, mood, plan_of, until

Make = Callable[..., WorkerRunner]


def test_plans_are_run_one_after_another(make_ready: Make) -> None:
    runner = make_ready()
    for step in range(1, 50):
        reply = runner.run(plan_of(step, step + 1, step=step))
        assert (reply.epoch, reply.step) == (1, step)
        assert [token and token.token_id for token in reply.sampled] == [step + 2]


def test_answers_are_those_of_the_same_runner_in_process(make_worker: Make) -> None:
    ours, theirs = make_worker(factory="tests.worker.fake_models:fake"), FakeRunner()
    make_it_ready(ours)
    theirs.open_arena(0, SHAPE)
    for step, tokens in enumerate([(5,), (1, 2, 3), (7, 7)], start=1):
        plan = plan_of(*tokens, step=step)
        assert ours.run(plan) == theirs.run(plan)


def test_a_failing_forward_fails_the_step_and_nothing_else(make_ready: Make) -> None:
    runner = make_ready()
    with pytest.raises(ForwardError, match=r"^ValueError: shapes do not match$"):
        runner.run(mood("raise_value_error"))
    with pytest.raises(ForwardError, match=r"^no memory for this step$"):
        runner.run(mood("raise_forward_error"))
    assert runner.run(plan_of(1)).sampled


def test_an_arena_that_does_not_fit_is_an_error_and_another_may_be_opened(make_ready: Make) -> None:
    runner = make_ready()
    with pytest.raises(RunnerError, match=r"^no memory for so many blocks$"):
        runner.open_arena(1, ArenaShape(2000, 16, 4))
    with pytest.raises(ForwardError, match="arena 1 is not open"):
        runner.run(plan_of(1, arena_id=1))
    runner.open_arena(1, ArenaShape(20, 16, 4))
    assert runner.run(plan_of(1, arena_id=1)).sampled


def test_replies_to_older_plans_are_dropped(make_ready: Make) -> None:
    reply = make_ready().run(mood("write_stale_replies", step=5))
    assert reply.step == 5 and reply.sampled[0] is not None and reply.sampled[0].token_id != 666


def test_a_plan_of_another_epoch_is_not_run(make_ready: Make) -> None:
    with pytest.raises(ForwardError, match="epoch 3"):
        make_ready().run(plan_of(1, epoch=3))


def test_prompts_are_encoded_in_order(make_ready: Make) -> None:
    runner = make_ready()
    events = Events(runner)
    for ticket in range(20):
        runner.encode(ticket, [PromptInput(chr(65 + ticket), chat=bool(ticket % 2)), PromptInput("z")])
    events.wait(Encoded, 20)
    answers = events.of(Encoded)
    assert [answer.ticket for answer in answers] == list(range(20))
    assert [answer.prompts[0].token_ids for answer in answers] == [[65 + ticket] for ticket in range(20)]
    assert answers[3].prompts[0].num_template_tokens == 1


def test_a_prompt_is_encoded_during_a_forward(make_ready: Make) -> None:
    runner = make_ready()
    runner.encode(1, [PromptInput("a")])
    # The forward ends when an encoding has been done, and says whether it was.
    token = runner.run(mood("wait_for_an_encode")).sampled[0]
    assert token is not None and token.token_id == 1
    assert Events(runner).wait(Encoded).ticket == 1


def test_a_prompt_that_cannot_be_encoded_says_why(make_ready: Make) -> None:
    runner = make_ready()
    events = Events(runner)
    runner.encode(1, [PromptInput("unencodable")])
    assert events.wait(Encoded).prompts[0].error == "ValueError: no such character"
    runner.encode(2, [PromptInput("\ud800")])
    assert "Unicode" in events.wait(Encoded, 2).prompts[0].error
    runner.encode(3, [PromptInput("x" * (MAX_FRAME_BYTES + 1))])
    assert "bytes" in events.wait(Encoded, 3).prompts[0].error
    runner.encode(4, [PromptInput("fine")])
    assert events.wait(Encoded, 4).prompts[0].token_ids == list(b"fine")


def test_a_prompt_larger_than_the_pipe_is_encoded(make_ready: Make) -> None:
    runner = make_ready()
    runner.encode(1, [PromptInput("x" * 1_000_000)])
    assert len(Events(runner).wait(Encoded).prompts[0].token_ids) == 1_000_000


def test_what_the_model_prints_goes_to_the_log_and_nowhere_else(
    make_ready: Make, capfd: pytest.CaptureFixture[str], log_path: Path
) -> None:
    runner = make_ready()
    assert runner.run(mood("print_a_lot")).sampled
    assert log_path.stat().st_size > 10_000_000
    assert capfd.readouterr() == ("", "")


def test_a_log_does_not_grow_without_limit(make_ready: Make, log_path: Path) -> None:
    runner = make_ready(timings=Timings(heartbeat_s=0.05))
    runner.run(mood("print_a_lot"))
    until(lambda: log_path.stat().st_size < 1_000_000 or not runner.run(mood("print_a_lot")))


def test_a_long_forward_is_no_stall(make_ready: Make) -> None:
    runner = make_ready(timings=Timings(heartbeat_s=0.1, stall_s=1.5), sleep_s=2.5)
    assert runner.run(mood("sleep")).sampled


def test_an_app_that_looks_rarely_does_not_take_its_absence_for_a_stall(make_ready: Make) -> None:
    runner = make_ready(timings=Timings(heartbeat_s=600.0, stall_s=0.5))
    time.sleep(0.7)
    assert not Events(runner).of(Died)


def test_an_interrupt_does_not_reach_the_model(make_ready: Make) -> None:
    runner = make_ready()
    assert runner.pid is not None
    os.kill(runner.pid, signal.SIGINT)
    assert os.getsid(runner.pid) == runner.pid
    assert runner.run(plan_of(1)).sampled


def test_a_folder_with_modules_of_the_same_names_is_not_imported_from(
    make_ready: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("engine", "msgspec", "random", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert make_ready().run(plan_of(1)).sampled


def test_running_before_the_model_is_there_is_an_error(make_worker: Make) -> None:
    runner = make_worker(load="forever")
    with pytest.raises(RunnerError, match="not started"):
        runner.run(plan_of(1, epoch=0))
    runner.start()
    with pytest.raises(RunnerError, match="loading"):
        runner.run(plan_of(1))


def test_the_app_imports_no_torch(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.worker.harness import Events, make_it_ready, plan_of
from engine.worker import RunnerSpec, WorkerRunner
runner = WorkerRunner(RunnerSpec(factory="tests.worker.fake_models:Moody"), log_path=Path(sys.argv[1]))
make_it_ready(runner)
assert runner.run(plan_of(1)).sampled
runner.close()
heavy = {"torch", "transformers", "numpy", "tokenizers", "safetensors", "gguf", "accelerate"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_worker_that_answers_and_dies_has_answered(
    make_ready: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_ready()

    def wait_for_the_end(channel: Channel, timeout_s: float) -> None:
        poller = select.poll()
        poller.register(channel._read_fd, select.POLLIN)
        until(lambda: any(event & select.POLLHUP for _, event in poller.poll(0)))

    monkeypatch.setattr(Channel, "wait", wait_for_the_end)  # the answer and the end are then met at once
    assert runner.run(mood("answer_and_exit")).sampled
    with pytest.raises(RunnerDied, match="exit status 0"):
        runner.run(plan_of(1, step=2))


def test_a_check_alone_comes_back_as_without_a_process(make_worker: Make) -> None:
    runner = make_worker(factory="tests.worker.fake_models:fake")
    make_it_ready(runner)
    here = FakeRunner()
    for check in pieces(1, [1, 2, 3], [300, 301], lambda: 2):
        assert runner.check(check) == here.check(check)
    with pytest.raises(ForwardError, match="goes on at 9"):
        runner.check(Check(1, 9, [1], []))
    with pytest.raises(ForwardError, match="epoch 2"):
        runner.check(Check(2, 0, [1], []))
    assert runner.check(Check(1, 0, [1], [5])).choices != [5]
