"""Runners for inside the worker: one that loads and runs as its options and its plans tell it to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from engine.fake import FakeRunner
from engine.runner import (
    Encoded,
    EncodedPrompt,
    ForwardError,
    LoadFailed,
    Loading,
    ModelInfo,
    ModelLoadError,
    PromptInput,
    Ready,
    RunnerDied,
    RunnerError,
    RunnerEvent,
)
from engine.step.geometry import ArenaShape
from engine.step.plan import Plan, Reply, SampledToken
from engine.worker.wire import Replied, RunnerSpec, to_frame

FOREVER_S = 600.0
#: A plan whose first row's first token is one of these makes `Moody` do that; others are echoed.
MOODS = (
    "raise_value_error",
    "raise_forward_error",
    "raise_runner_died",
    "wait_for_an_encode",
    "sleep",
    "sleep_forever",
    "spin_forever",
    "exit",
    "kill_itself",
    "stop_itself",
    "write_garbage",
    "write_newer_version",
    "write_stale_replies",
    "miss_a_sample",
    "print_a_lot",
    "ignore_term_forever",
    "answer_and_exit",
)


def mood_token(mood: str) -> int:
    return 9000 + MOODS.index(mood)


def answers_fd() -> int:
    return int(sys.argv[2])


class Moody:
    """Echoes (next token = last token + 1) unless told otherwise."""

    def __init__(self, spec: RunnerSpec, progress: Callable[[Loading], None]) -> None:
        self._load = str(spec.options.get("load", ""))
        self._events: deque[RunnerEvent] = deque()
        self._arenas: dict[int, ArenaShape] = {}
        self._encoded = threading.Event()
        self._sleep_s = float(spec.options.get("sleep_s") or 0.0)
        self._progress = progress
        progress(Loading("making the runner"))

    def start(self) -> None:
        match self._load:
            case "forever":
                self._events.append(Loading("never ends", 1, 3, "MB", "nothing"))
                time.sleep(FOREVER_S)
            case "installer":
                child = subprocess.Popen(["sleep", "60"])
                self._events.append(Loading(f"installer {child.pid}"))
                child.wait()
            case "installer_then_killed":
                child = subprocess.Popen(["sleep", "60"], close_fds=False)
                self._progress(Loading(f"installer {child.pid}"))  # sent when this returns
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise ModelLoadError("the file is broken", "read", "cbtui setup")
            case "fail_plainly":
                raise KeyError("lm_head")
            case "fail_by_event":
                self._events.append(LoadFailed("no such model", "find", "cbtui models"))
                return
            case "exit":
                print("disk on fire", file=sys.stderr)
                os._exit(3)
            case "many_reports":
                for i in range(5001):
                    self._events.append(Loading("reading", i, 5000, "files"))
        pythonpath = os.environ.get("PYTHONPATH", "")
        self._events.append(Ready(ModelInfo(name="moody", source=pythonpath, vocab_size=9), 1))

    def poll(self) -> list[RunnerEvent]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def encode(self, ticket: int, prompts: list[PromptInput]) -> None:
        if any(prompt.text == "unencodable" for prompt in prompts):
            raise ValueError("no such character")
        encoded = [EncodedPrompt(list(prompt.text.encode()), int(prompt.chat)) for prompt in prompts]
        self._events.append(Encoded(ticket, encoded))
        self._encoded.set()

    def open_arena(self, arena_id: int, shape: ArenaShape) -> None:
        if shape.num_blocks > 1000:
            raise RunnerError("no memory for so many blocks")
        self._arenas[arena_id] = shape

    def run(self, plan: Plan) -> Reply:
        if plan.arena_id not in self._arenas:
            raise ForwardError(f"arena {plan.arena_id} is not open")
        first = plan.rows[0].token_ids[0]
        if first >= 9000:
            return self._act(MOODS[first - 9000], plan)
        return self._echo(plan)

    def close(self) -> None:
        """Nothing to end."""

    def _echo(self, plan: Plan) -> Reply:
        sampled = [
            None if row.sampling is None else SampledToken(row.token_ids[-1] + 1, -0.5) for row in plan.rows
        ]
        return Reply(plan.epoch, plan.step, 0.001, 0.0, sampled)

    def _act(self, mood: str, plan: Plan) -> Reply:
        match mood:
            case "raise_value_error":
                raise ValueError("shapes do not match")
            case "raise_forward_error":
                raise ForwardError("no memory for this step")
            case "raise_runner_died":
                raise RunnerDied("the device is lost")
            case "wait_for_an_encode":
                token = int(self._encoded.wait(20.0))
                return Reply(plan.epoch, plan.step, 0.0, 0.0, [SampledToken(token, 0.0)])
            case "sleep":
                time.sleep(self._sleep_s)
            case "sleep_forever":
                time.sleep(FOREVER_S)
            case "spin_forever":
                while True:
                    pass
            case "exit":
                print("out of cheese\n", file=sys.stderr)
                os._exit(3)
            case "kill_itself":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop_itself":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "write_garbage":
                os.write(answers_fd(), b"hello, is this the terminal?\n")
                time.sleep(FOREVER_S)
            case "write_newer_version":
                os.write(answers_fd(), b"cbw\x63\x00\x00\x00\x00")
                time.sleep(FOREVER_S)
            case "write_stale_replies":
                wrong = [SampledToken(666, 0.0)]
                os.write(answers_fd(), to_frame(Replied(Reply(plan.epoch - 1, plan.step, 0.0, 0.0, wrong))))
                os.write(answers_fd(), to_frame(Replied(Reply(plan.epoch, plan.step - 1, 0.0, 0.0, wrong))))
            case "miss_a_sample":
                return Reply(plan.epoch, plan.step, 0.0, 0.0, [])
            case "print_a_lot":
                for _ in range(20):
                    os.write(1, b"o" * 499_999 + b"\n")
                    os.write(2, b"e" * 499_999 + b"\n")
            case "ignore_term_forever":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.kill(os.getpid(), signal.SIGSTOP)  # its reader cannot act on end-of-file either
            case "answer_and_exit":
                os.write(answers_fd(), to_frame(Replied(self._echo(plan))))
                os._exit(0)
        return self._echo(plan)


def fake(spec: RunnerSpec, progress: Callable[[Loading], None]) -> FakeRunner:
    """The engine's own fake: the same answers through the process as without it."""
    return FakeRunner()


def slow_fake(spec: RunnerSpec, progress: Callable[[Loading], None]) -> FakeRunner:
    """The same, slow enough for a test to meet it in the middle."""
    return FakeRunner(delay_s=0.003)
