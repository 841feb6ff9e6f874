"""Models that cannot be run are refused: one sentence with the reason, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers.utils import logging as transformers_logging

from cbtui.__main__ import run
from cbtui.cli import models
from engine.torch_runner import LoadOptions, TorchRunner, sources
from engine.worker.wire import RunnerSpec
from tests.torch_runner.unfit import UNFIT, small_model

Ended = tuple[int, str, str]


@pytest.fixture
def cbtui(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., Ended]]:
    """The command on a real model in this process, without a network, as quiet as the model process is."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()

    def make_runner(spec: RunnerSpec) -> TorchRunner:
        return TorchRunner(spec.model, options=LoadOptions(num_threads=1, cache_dir=tmp_path / "cache"))

    def call(*arguments: str) -> Ended:
        code = run(list(arguments))
        return code, *capsys.readouterr()

    monkeypatch.setattr(models, "make_runner", make_runner)
    monkeypatch.setattr(sources, "_hub_reachable", lambda: False)
    yield call
    transformers_logging.set_verbosity(verbosity)


def assert_refused(ended: Ended, words: str) -> None:
    code, out, err = ended
    assert (code, out) == (2, ""), err
    # In this process there is a progress bar of transformers' before it; the model process has a log for it.
    err = err[err.index("cbtui: the model cannot be loaded (") :]
    assert words in err
    assert err.count("\n") == 1, "one sentence"


@pytest.mark.parametrize("name", UNFIT)
def test_a_model_that_cannot_be_run_is_refused_with_the_reason(
    name: str, cbtui: Callable[..., Ended], tmp_path: Path
) -> None:
    build, words = UNFIT[name]
    path = str(build(tmp_path / "model"))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the capital\n")
    assert_refused(cbtui("run", str(prompts), "--model", path), words)


@pytest.mark.parametrize("command", [["compare", "--model"], ["models", "check"]])
@pytest.mark.parametrize("name", ["Mamba", "weights cut short"])
def test_every_command_refuses_it(
    name: str, command: list[str], cbtui: Callable[..., Ended], tmp_path: Path
) -> None:
    build, words = UNFIT[name]
    assert_refused(cbtui(*command, str(build(tmp_path / "model"))), words)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("weights cut short", ["models", "check"]),
        ("a Hub id with no network", ["compare", "--model"]),
    ],
)
def test_the_real_command_with_its_model_process_refuses_it(
    name: str, command: list[str], tmp_path: Path
) -> None:
    build, words = UNFIT[name]
    arguments = (sys.executable, "-m", "cbtui", *command, str(build(tmp_path / "model")))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert_refused((done.returncode, done.stdout, done.stderr), words)


def test_the_model_they_were_made_from_is_not_refused(cbtui: Callable[..., Ended], tmp_path: Path) -> None:
    code, _, err = cbtui("models", "check", str(small_model(tmp_path / "model")))
    assert (code, err) == (0, "")
