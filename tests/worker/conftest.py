"""Starting workers for a test, and ending them after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.worker import RunnerSpec, Timings, WorkerRunner
from tests.worker.harness import make_it_ready

Value = str | int | float | bool | None


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "worker.log"


@pytest.fixture
def make_worker(log_path: Path) -> Iterator[Callable[..., WorkerRunner]]:
    """Makes a runner on `fake_models`; `load` and other options tell the model what to do."""
    made: list[WorkerRunner] = []

    def make(
        *, factory: str = "tests.worker.fake_models:Moody", timings: Timings | None = None, **options: Value
    ) -> WorkerRunner:
        spec = RunnerSpec(factory=factory, options=options)
        made.append(WorkerRunner(spec, log_path=log_path, timings=timings))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def make_ready(make_worker: Callable[..., WorkerRunner]) -> Callable[..., WorkerRunner]:
    """Makes a loaded runner with arena 0 open; arguments as `make_worker`."""

    def make(**options: object) -> WorkerRunner:
        runner = make_worker(**options)
        make_it_ready(runner)
        return runner

    return make
