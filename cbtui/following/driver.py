"""Who runs behind a screen: the engine's loop over a model, a recorded trace, or a server elsewhere.

What is heavy is imported in the engine's thread, after the screen has been drawn once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cbtui.following.link import Link
from cbtui.options import LaunchOptions

if TYPE_CHECKING:
    from engine.attach.source import Source
    from engine.runner import ModelRunner

#: Likeliest tokens recorded beside each sampled one.
N_TOP = 5


def worker_runner(options: LaunchOptions) -> ModelRunner:
    """The proxy of a model process, as the headless commands make it."""
    from cbtui.cli.models import make_runner

    return make_runner(options.runner)


class LoopDriver:
    """Implements `EngineDriver`.

    Args:
        options: what the command line said.
        link: shared with the screen.
        make_runner: makes the model's runner; tests bring one without a model.
    """

    def __init__(
        self,
        options: LaunchOptions,
        link: Link,
        make_runner: Callable[[LaunchOptions], ModelRunner] = worker_runner,
    ) -> None:
        self._options = options
        self._link = link
        self._make_runner = make_runner
        self._lock = threading.Lock()
        self._runner: ModelRunner | None = None
        self._is_closed = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Block until a `Close` command, `close()` or `should_stop()`."""
        from cbtui.following.file_feed import FileFeed
        from engine.live.loop import EngineLoop
        from engine.session import token_bytes_of

        with self._lock:
            if self._is_closed:
                return
            runner = self._runner = self._make_runner(self._options)
        options = self._options
        feed = FileFeed(options.requests, options.arrivals, self._link, raw=options.raw)

        def between_turns() -> bool:
            feed.look()
            return should_stop()

        EngineLoop(
            options.config,
            runner,
            commands=self._link.commands,
            mailbox=self._link.mailbox,
            history=self._link.history,
            paused=options.paused,
            speed=options.speed,
            n_top=N_TOP,
            token_bytes=token_bytes_of,
            verify=options.verify,
        ).run(between_turns)

    def close(self) -> None:
        """End the model at once; a forward under way fails, and the loop with it."""
        with self._lock:
            self._is_closed = True
            runner = self._runner
        if runner is not None:
            runner.close()


class ReplayDriver:
    """Implements `EngineDriver` on a recorded trace: no model, no process.

    Args:
        path: the trace; that it is one was checked before.
        options: pace, and where to begin.
        link: shared with the screen.
    """

    def __init__(self, path: Path, options: LaunchOptions, link: Link) -> None:
        self._path = path
        self._options = options
        self._link = link
        self._is_closed = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Block until a `Close` command, `close()` or `should_stop()`."""
        from engine.attach.recordings import opened
        from engine.live.replay import ReplayLoop

        with opened(self._path) as (header, records):
            ReplayLoop(
                header,
                records,
                commands=self._link.commands,
                mailbox=self._link.mailbox,
                history=self._link.history,
                paused=self._options.paused,
                speed=self._options.speed,
                upto=self._options.replay_upto,
            ).run(lambda: self._is_closed or should_stop())

    def close(self) -> None:
        """End at the next look."""
        self._is_closed = True


def attached_source(options: LaunchOptions) -> Source:
    """The server that runs elsewhere."""
    from engine.attach.address import key_of
    from engine.attach.opening import source_of

    assert options.attach is not None
    return source_of(options.attach, key_of() if options.key is None else options.key)


def vllm_source(options: LaunchOptions) -> Source:
    """A vLLM of this program's own."""
    from engine.attach.vllm_child import VllmChild
    from engine.attach.vllm_launch import LaunchedVllm

    assert options.vllm is not None
    return LaunchedVllm(VllmChild(options.vllm.executable, options.vllm.arguments))


class AttachDriver:
    """Implements `EngineDriver` on a server that schedules by itself.

    Args:
        make_source: makes what it is followed through.
        options: requests to send, and whether to begin with its records held back.
        link: shared with the screen.
    """

    def __init__(
        self, make_source: Callable[[LaunchOptions], Source], options: LaunchOptions, link: Link
    ) -> None:
        self._make_source = make_source
        self._options = options
        self._link = link
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._is_closed = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Block until a `Close` command, `close()` or `should_stop()`."""
        from cbtui.following.file_feed import FileFeed
        from engine.attach.loop import AttachLoop

        options = self._options
        with self._lock:
            if self._is_closed:
                return
            source = self._source = self._make_source(options)
        feed = FileFeed(options.requests, options.arrivals, self._link, raw=options.raw)

        def between_turns() -> bool:
            feed.look()
            return self._is_closed or should_stop()

        AttachLoop(
            source,
            commands=self._link.commands,
            mailbox=self._link.mailbox,
            history=self._link.history,
            paused=options.paused,
        ).run(between_turns)

    def close(self) -> None:
        """Let go of the server at once; a read under way ends."""
        with self._lock:
            self._is_closed = True
            source = self._source
        if source is not None:
            source.close()
