"""What the worker process does: takes orders, drives the runner inside it, answers.

Four threads. The main one loads and runs plans (torch wants to be where it was first used). One reads
orders and ends the process at end-of-file, whatever the others do. One encodes, during a forward too.
One sends heartbeats. They share the write end of a pipe (a lock) and the runner's events (another).
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from engine.runner import (
    Encoded,
    EncodedPrompt,
    LoadFailed,
    Loading,
    ModelLoadError,
    ModelRunner,
    Ready,
    RunnerDied,
    RunnerError,
)
from engine.worker.wire import (
    Answer,
    ArenaFailed,
    ArenaOpened,
    CheckDone,
    CheckFailed,
    Encode,
    ForwardFailed,
    FrameReader,
    Heartbeat,
    OpenArena,
    Replied,
    RunCheck,
    RunnerSpec,
    RunPlan,
    Start,
    WireError,
    to_frame,
    to_order,
)

#: Makes the runner of a spec; may take long, saying so through the callback.
Factory = Callable[[RunnerSpec, Callable[[Loading], None]], ModelRunner]
FindFactory = Callable[[RunnerSpec], Factory]

_CHUNK = 1 << 18
#: Between two looks at a loading runner's events, seconds.
_LOOK_S = 0.02
#: Progress of one stage is passed on at most this often, seconds.
_PROGRESS_S = 0.05
#: A log grown beyond this is emptied, bytes: a model that warns at every step must not fill the disk.
_LOG_LIMIT = 16 * 1024 * 1024


def leave(status: int) -> NoReturn:
    """End the process at once, and what it has started (an installer fetching the model)."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGTERM)
    os._exit(status)


class Outlet:
    """The write end of the pipe to the app, shared by the threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, answer: Answer) -> None:
        """Write an answer; the app being gone ends the process.

        Raises:
            WireError: the answer cannot be a frame.
        """
        frame = memoryview(to_frame(answer))
        try:
            with self._lock:
                while frame:
                    frame = frame[os.write(self._fd, frame) :]
        except OSError:
            leave(1)


class EventPump:
    """Passes a runner's events on to the app, each once and in order."""

    def __init__(self, outlet: Outlet) -> None:
        self.runner: ModelRunner | None = None
        #: Set once the runner is ready or has failed; `is_ready` says which.
        self.settled = threading.Event()
        self.is_ready = False
        self._outlet = outlet
        self._lock = threading.Lock()
        self._progress = Loading("")
        self._progress_at = 0.0

    def pump(self) -> None:
        """Pass on what the runner has to say now."""
        with self._lock:
            for event in self.runner.poll() if self.runner else []:
                if isinstance(event, Loading):
                    self._pass_progress(event)
                elif isinstance(event, Ready | LoadFailed):
                    self._settle(event)
                elif isinstance(event, Encoded):
                    self._pass_encoded(event)
                else:
                    raise RunnerDied(event.message)

    def progress(self, loading: Loading) -> None:
        """Pass on progress made before there is a runner."""
        with self._lock:
            self._pass_progress(loading)

    def fail(self, failure: LoadFailed) -> None:
        """Report that there will be no model."""
        with self._lock:
            if not self.settled.is_set():
                self._settle(failure)

    def pump_until_settled(self) -> None:
        """For a thread: a runner may load inside `start()`, where its own thread cannot pump."""
        while not self.settled.wait(_LOOK_S):
            self.pump()

    def _settle(self, event: Ready | LoadFailed) -> None:
        self.is_ready = isinstance(event, Ready)
        self._outlet.send(event)
        self.settled.set()

    def _pass_encoded(self, event: Encoded) -> None:
        try:
            self._outlet.send(event)
        except WireError as error:
            self._outlet.send(_not_encoded(event.ticket, len(event.prompts), str(error)))

    def _pass_progress(self, loading: Loading) -> None:
        """A download reports every few kilobytes; a screen wants some twenty a second, and the last."""
        is_news = loading.stage != self._progress.stage or loading.done >= loading.total
        now = time.monotonic()
        if is_news or now - self._progress_at >= _PROGRESS_S:
            self._progress, self._progress_at = loading, now
            self._outlet.send(loading)


class Service:
    """Serves one app until it is gone.

    Args:
        orders_fd, answers_fd: the two pipes.
        find_factory: the factory a spec names.
    """

    def __init__(self, orders_fd: int, answers_fd: int, find_factory: FindFactory) -> None:
        self._orders_fd = orders_fd
        self._find_factory = find_factory
        self._outlet = Outlet(answers_fd)
        self._pump = EventPump(self._outlet)
        self._encodes: queue.SimpleQueue[Encode] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[Start | OpenArena | RunPlan | RunCheck] = queue.SimpleQueue()

    def serve(self) -> NoReturn:
        """Load, then answer orders until end-of-file, which ends the process."""
        _begin(self._read_orders)
        start = self._orders.get()
        if not isinstance(start, Start):
            raise WireError("garbage", "the first order must be to start")
        _begin(lambda: self._beat(start.heartbeat_s))
        runner = self._load(start.spec)
        if runner is None:
            threading.Event().wait()  # the app has been told, and ends this process
            raise AssertionError
        _begin(lambda: self._encode(runner))
        # What loading leaves lives as long as the process: collections need not walk through it.
        gc.collect()
        gc.freeze()
        while True:
            self._obey(runner, self._orders.get())

    def _load(self, spec: RunnerSpec) -> ModelRunner | None:
        try:
            runner = self._find_factory(spec)(spec, self._pump.progress)
            self._pump.runner = runner
            _begin(self._pump.pump_until_settled)
            runner.start()
            self._pump.settled.wait()
        except ModelLoadError as error:
            traceback.print_exc()
            self._pump.fail(LoadFailed(str(error), error.stage, error.hint))
        except Exception as error:
            traceback.print_exc()
            self._pump.pump()  # the runner may have put it better
            self._pump.fail(LoadFailed(_described(error), "load"))
        return self._pump.runner if self._pump.is_ready else None

    def _obey(self, runner: ModelRunner, order: Start | OpenArena | RunPlan | RunCheck) -> None:
        answer: Answer
        if isinstance(order, RunPlan):
            plan = order.plan
            try:
                answer = Replied(runner.run(plan))
            except RunnerDied:
                raise
            except Exception as error:
                traceback.print_exc()
                answer = ForwardFailed(plan.epoch, plan.step, _described(error))
        elif isinstance(order, RunCheck):
            check = order.check
            try:
                answer = CheckDone(check.epoch, check.start, runner.check(check))
            except RunnerDied:
                raise
            except Exception as error:
                traceback.print_exc()
                answer = CheckFailed(check.epoch, check.start, _described(error))
        elif isinstance(order, OpenArena):
            try:
                runner.open_arena(order.arena_id, order.shape)
                answer = ArenaOpened(order.arena_id)
            except RunnerDied:
                raise
            except Exception as error:
                traceback.print_exc()
                answer = ArenaFailed(order.arena_id, _described(error))
        else:
            raise WireError("garbage", "started already")
        self._outlet.send(answer)

    def _encode(self, runner: ModelRunner) -> None:
        while True:
            order = self._encodes.get()
            try:
                runner.encode(order.ticket, order.prompts)
            except Exception as error:
                traceback.print_exc()
                self._outlet.send(_not_encoded(order.ticket, len(order.prompts), _described(error)))
            self._pump.pump()

    def _beat(self, every_s: float) -> None:
        while True:
            self._outlet.send(Heartbeat())
            if os.fstat(1).st_size > _LOG_LIMIT:
                os.ftruncate(1, 0)
            time.sleep(every_s)

    def _read_orders(self) -> None:
        frames = FrameReader()
        while data := os.read(self._orders_fd, _CHUNK):
            for order in map(to_order, frames.feed(data)):
                if isinstance(order, Encode):
                    self._encodes.put(order)
                else:
                    self._orders.put(order)
        leave(0)


def _begin(work: Callable[[], None]) -> None:
    """Run `work` in a thread; an exception in it ends the process, for half of it is of no use."""

    def guarded() -> None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    threading.Thread(target=guarded, daemon=True).start()


def _described(error: Exception) -> str:
    """For the user; a runner's own errors are sentences already."""
    text = str(error).strip()
    return text if isinstance(error, RunnerError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _not_encoded(ticket: int, count: int, why: str) -> Encoded:
    return Encoded(ticket, [EncodedPrompt([], error=why)] * count)
