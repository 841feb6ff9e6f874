"""Playing a recorded trace: pace, pause, steps, running until something, the end, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbtui.following.follower import Follower
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import (
    Close,
    Pause,
    PromptRequest,
    Resume,
    RunUntil,
    SetMode,
    SetSpeed,
    Step,
    Submit,
)
from engine.live.replay import NO_MODEL, ReplayLoop
from engine.live.state import EngineState
from engine.request import SamplingParams
from engine.session import drain
from engine.stream.records import Record, TraceHeader
from engine.stream.trace import TraceError
from engine.stream.trace_files import TraceRecorder, header_of, opened
from tests.app.replay import fake_records

HEADER = TraceHeader(1, "m", "cpu", "float32", block_size=8, num_threads=2)


class Player:
    """A loop turned by hand on a clock of its own."""

    def __init__(self, records: Iterator[Record], **options: object) -> None:
        self.commands, self.mailbox, self.history = CommandQueue(), Mailbox(), History(100_000)
        self.now = 0.0
        self.loop = ReplayLoop(
            HEADER,
            records,
            commands=self.commands,
            mailbox=self.mailbox,
            history=self.history,
            now_s=lambda: self.now,
            **options,  # type: ignore[arg-type]  # a test's own
        )

    @property
    def state(self) -> EngineState:
        return self.mailbox.latest()

    def put(self, *commands: object) -> EngineState:
        for command in commands:
            self.commands.put(command)  # type: ignore[arg-type]  # as above
        self.loop.turn()
        self.loop.turn()
        return self.state


def test_at_a_speed_steps_come_one_by_one() -> None:
    player = Player(iter(fake_records()), speed=2.0)
    player.loop.turn()
    assert player.state.step == 1
    player.loop.turn()
    assert player.state.step == 1
    player.now = 0.5
    player.loop.turn()
    assert (player.state.step, player.state.status, player.state.is_recording) == (2, "running", True)


def test_as_fast_as_it_can_it_is_all_there_and_ends_idle() -> None:
    records = fake_records()
    player = Player(iter(records))
    for _ in range(5):
        player.loop.turn()
    assert player.history.since(0) == (0, records)
    assert (player.state.status, player.state.slots, player.state.waiting_count) == ("idle", (), 0)
    assert player.state.model is not None and player.state.model.num_threads == 2
    assert player.state.config.block_size == 8


def test_pause_single_steps_and_running_on() -> None:
    player = Player(iter(fake_records()), speed=1.0, paused=True)
    player.loop.turn()
    assert (player.state.step, player.state.status) == (0, "paused")
    assert player.put(Step()).step == 1
    assert player.put(Step(2)).step == 3
    player.now = 9.0
    assert player.put(Resume()).step == 4
    assert player.put(Pause()).status == "paused"
    assert player.put(SetSpeed(None)).speed is None


def test_running_until_something_happens_does_not_wait() -> None:
    player = Player(iter(fake_records()), speed=0.01, paused=True)
    state = player.put(RunUntil("finished"))
    assert (state.paused, state.until) == (True, "")
    _, records = player.history.since(0)
    assert records[-1].events.finished and not any(record.events.finished for record in records[:-1])
    assert player.put(RunUntil("step", 5)).step == 5
    assert player.put(RunUntil("drained")).paused


@pytest.mark.parametrize(("upto", "step"), [(4, 4), (float("inf"), 10)])
def test_it_may_begin_further_on(upto: float, step: int) -> None:
    records = fake_records()
    last = max(record.step for record in records)
    player = Player(iter(records), speed=1.0, paused=True, upto=upto)
    player.loop.turn()
    assert (player.state.step, player.state.paused) == (min(step, last), True)


def test_what_needs_a_model_is_refused_in_words() -> None:
    player = Player(iter(fake_records()), paused=True)
    for number, command in enumerate((Submit((PromptRequest(prompt="a"),)), SetMode("static")), 1):
        rejection = player.put(command).rejection
        assert rejection is not None and (rejection.number, rejection.message) == (number, NO_MODEL)


def test_after_the_end_there_is_nothing_to_step() -> None:
    player = Player(iter(fake_records()))
    rejection = player.put(Step()).rejection
    player.put(Resume())
    rejection = player.put(Step()).rejection
    assert rejection is not None and rejection.message == "the recording ends here"


def test_a_broken_trace_is_shown_as_far_as_it_goes() -> None:
    def broken() -> Iterator[Record]:
        yield from fake_records()[:3]
        raise TraceError("line 5: the trace is cut off here")

    player = Player(broken())
    player.loop.turn()
    assert player.history.total == 3 and player.state.status == "idle"
    assert player.state.rejection is not None
    assert player.state.rejection.message == "line 5: the trace is cut off here; what stands before is shown"


def test_a_loop_ends_with_close() -> None:
    player = Player(iter(fake_records()))
    player.commands.put(Close())
    player.loop.run()
    assert player.state.status == "closed"


def test_a_screen_follows_it_like_an_engine() -> None:
    records = fake_records()
    player = Player(iter(records))
    follower = Follower(player.mailbox, player.history)
    player.loop.turn()
    assert follower.poll()
    assert follower.num_unfinished == 0 and follower.frame(step=2).record is not None


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 steps of three slots."""
    path = tmp_path_factory.mktemp("traces") / "long.trace"
    runner = FakeRunner()
    runner.start()
    config = EngineConfig(num_blocks=2048)
    engine = Engine(config, runner, runner.info, token_bytes=fake_token_bytes, n_top=5)
    for number in range(300):
        engine.add_request(list(b"prompt %d" % number), SamplingParams(max_tokens=100, ignore_eos=True))
    recorder = TraceRecorder(path)
    recorder.begin(header_of(runner.info, config))
    for record in drain(engine):
        recorder.write(record)
    recorder.close()
    return path


def test_ten_thousand_steps_are_read_once_and_published_in_a_few_states(long_trace: Path) -> None:
    lines_read = 0

    def counted(records: Iterator[Record]) -> Iterator[Record]:
        nonlocal lines_read
        for record in records:
            lines_read += 1
            yield record

    with opened(long_trace) as (header, records):
        assert header.model == "fake"
        player = Player(counted(records), upto=float("inf"))
        player.loop.turn()
        # A turn plays some of it and publishes: the screen is never kept waiting for the whole file.
        assert 0 < player.state.step < 10_000 and lines_read < 5_000
        turns = 1
        while player.state.status != "idle":
            player.loop.turn()
            turns += 1
    assert player.state.step == 10_000
    assert (lines_read, player.history.total) == (10_000, 10_000)
    assert turns < 200 and player.state.version <= turns + 1


def test_replay_imports_no_torch() -> None:
    modules = "engine.live.replay, cbtui.following.driver, cbtui.cli.replay_command"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"
