"""The model a headless command runs on, in a process of its own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cbtui.cli.console import Progress, complain
from cbtui.options import risks
from engine.runner import ModelRunner, Ready
from engine.session import wait_until_ready
from engine.worker import RunnerSpec, WorkerRunner

#: For tests: `module:callable` that makes a runner in this process; no option of the program.
FACTORY_VARIABLE = "CBTUI_TEST_RUNNER"


def make_runner(spec: RunnerSpec) -> ModelRunner:
    """The runner of a spec; tests put another in its place."""
    if factory := os.environ.get(FACTORY_VARIABLE):
        module, _, name = factory.partition(":")
        runner: ModelRunner = getattr(importlib.import_module(module), name)()
        return runner
    return WorkerRunner(spec)


@contextmanager
def loaded_model(spec: RunnerSpec, progress: Progress) -> Iterator[tuple[ModelRunner, Ready]]:
    """A runner with its model loaded, closed at the end whatever happens.

    Raises:
        ModelLoadError: there will be no model.
        RunnerDied: the model process ended while loading.
    """
    for risk in risks(spec):
        complain(f"warning: {risk}")
    runner = make_runner(spec)
    try:
        progress.say("starting the model process")
        ready = wait_until_ready(runner, progress.loading)
        progress.clear()
        yield runner, ready
    finally:
        progress.clear()
        runner.close()
