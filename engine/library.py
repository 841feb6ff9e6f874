"""The engine for other programs: a model loaded in a process of its own, and what is asked of it.

    with load_model() as model:
        engine = Engine(EngineConfig(), model.runner, model.info, token_bytes=model.token_bytes)
        model.submit(engine, [PromptRequest(prompt="The capital of France is", max_tokens=8)])
        for record in drain(engine):
            print(record)

What is exported by `engine` itself stays; the modules behind it may move. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.runner import Loading, ModelInfo, ModelRunner
from engine.session import encode, submit, token_bytes_of, wait_until_ready
from engine.worker import RunnerSpec, WorkerRunner


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model.

    Attributes:
        runner: runs the plans of every engine on it; each engine opens an arena of its own (`arena_id`).
        info: what it is; `info.name`, `info.max_model_len` and so on.
        token_bytes: a token id's bytes; None where its tokenizer wrote no file.
    """

    runner: ModelRunner
    info: ModelInfo
    token_bytes: Callable[[int], bytes] | None

    def submit(self, engine: Engine, requests: Sequence[PromptRequest]) -> list[str]:
        """Turn prompts into tokens and enqueue them, in order; the ids of the requests.

        One that can never fit ends at once as `ignored`: the next record says so.

        Raises:
            ValueError: a prompt cannot be encoded, or sampling parameters are out of range; nothing was
                enqueued then.
            RunnerDied: the model process ended meanwhile.
        """
        encoded = encode(self.runner, requests)
        for request, prompt in zip(requests, encoded, strict=True):
            if prompt.error or not prompt.token_ids:
                raise ValueError(
                    f"{request.prompt!r} cannot be encoded: {prompt.error or 'it has no tokens'}"
                )
            request.sampling(lambda: 0)
        return [submit(engine, *pair) for pair in zip(requests, encoded, strict=True)]


@contextmanager
def load_model(
    model: str | None = None,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    num_threads: int | None = None,
    exact: bool = False,
    on_loading: Callable[[Loading], None] | None = None,
) -> Iterator[Model]:
    """Load a model in a process of its own, which ends with the `with` block.

    Args:
        model: a Hugging Face Hub id, a folder or a `.gguf` file; None: the default model, which is fetched
            and converted the first time.
        device: `cpu`, `cuda`, `mps` or `auto`.
        dtype: `float32`, `bfloat16` or `float16`.
        num_threads: torch threads; None: what is fastest here.
        exact: logits bitwise the same alone and in any batch; float32 on one thread, slower.
        on_loading: told of progress.

    Raises:
        ModelLoadError: it cannot be had, or not be run faithfully; `stage` and `hint` say more.
        RunnerDied: its process ended while loading.
    """
    options: dict[str, str | int | float | bool | None] = {"device": device, "dtype": dtype, "exact": exact}
    if num_threads is not None:
        options["num_threads"] = num_threads
    runner = WorkerRunner(RunnerSpec(model=model, options=options))
    try:
        info = wait_until_ready(runner, on_loading).info
        yield Model(runner, info, token_bytes_of(info))
    finally:
        runner.close()
