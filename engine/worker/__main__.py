"""`python -m engine.worker ORDERS_FD ANSWERS_FD`: the model process. Started by `WorkerProcess` only.

Sets the process up before anything heavy is imported, and makes the torch runner; all else is
`service.py`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, cast

from engine.model_store import resolve
from engine.runner import Loading, ModelLoadError, ModelRunner, RunnerDied
from engine.worker.log import LogStream
from engine.worker.process import CALLERS_PYTHONPATH
from engine.worker.service import Factory, Service
from engine.worker.wire import RunnerSpec

#: Set before the imports they speak to; whoever wants more in the log sets them otherwise.
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
}


def main() -> NoReturn:
    """Serve the app at the other end of the two descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders_fd, answers_fd = map(int, sys.argv[1:])
    for fd in (orders_fd, answers_fd):
        os.set_inheritable(fd, False)
    _set_environment()
    sys.stdout, sys.stderr = LogStream(sys.stdout), LogStream(sys.stderr)
    try:
        Service(orders_fd, answers_fd, _factory).serve()
    except RunnerDied as death:  # a sentence already, which becomes the cause
        print(death, file=sys.stderr, flush=True)
        os._exit(1)
    except BaseException:
        # Not by way of the interpreter's own end: it would wait for threads that wait for the app.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _set_environment() -> None:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if callers := os.environ.pop(CALLERS_PYTHONPATH, ""):
        os.environ["PYTHONPATH"] = callers
    else:
        os.environ.pop("PYTHONPATH", None)


def _factory(spec: RunnerSpec) -> Factory:
    if not spec.factory:
        return _torch_runner
    module, _, name = spec.factory.partition(":")
    return cast(Factory, getattr(importlib.import_module(module), name))


def _torch_runner(spec: RunnerSpec, progress: Callable[[Loading], None]) -> ModelRunner:
    model = resolve(spec.model, progress)  # first: a wrong name or a download need not wait for torch
    progress(Loading("starting torch", then="reading the tokenizer"))
    try:
        from engine.torch_runner import LoadOptions, TorchRunner
    except (ImportError, OSError) as error:
        message = f"torch or transformers cannot be imported: {error}"
        raise ModelLoadError(message, "import", "pip install torch transformers") from error
    options: dict[str, Any] = dict(spec.options)
    return TorchRunner(model, options=LoadOptions(**options))


if __name__ == "__main__":
    main()
