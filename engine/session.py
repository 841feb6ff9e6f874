"""Blocking helpers over a runner, for use without a screen: load, encode, submit, run to the end.

One thread does it all. The screen's engine loop does the same without ever waiting.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine, StepLost
from engine.live.commands import PromptRequest
from engine.live.feed import Feed
from engine.live.model_life import other_model
from engine.live.prompting import enter, inputs_of, prompts_of
from engine.runner import (
    Died,
    Encoded,
    EncodedPrompt,
    LoadFailed,
    Loading,
    ModelInfo,
    ModelLoadError,
    ModelRunner,
    Ready,
    RunnerDied,
)
from engine.stream.records import Record
from engine.token_text import TokenBytes

#: Between two looks at a runner's events, seconds.
_LOOK_S = 0.005
_tickets = itertools.count(1)


def wait_until_ready(runner: ModelRunner, on_loading: Callable[[Loading], None] | None = None) -> Ready:
    """Start a runner and wait for its model.

    Args:
        on_loading: told of progress.

    Raises:
        ModelLoadError: there will be no model.
        RunnerDied: the runner ended while loading.
    """
    runner.start()
    while True:
        for event in runner.poll():
            match event:
                case Ready():
                    return event
                case Loading() if on_loading is not None:
                    on_loading(event)
                case LoadFailed(message=message, stage=stage, hint=hint):
                    raise ModelLoadError(message, stage, hint)
                case Died(message=message):
                    raise RunnerDied(message)
        time.sleep(_LOOK_S)


def encode(runner: ModelRunner, requests: Sequence[PromptRequest]) -> list[EncodedPrompt]:
    """Token ids of each request's prompt, in order; one that cannot be encoded carries its error.

    Raises:
        RunnerDied: the runner ended meanwhile.
    """
    ticket = next(_tickets)
    runner.encode(ticket, inputs_of(requests))
    while True:
        for event in runner.poll():
            match event:
                case Encoded(ticket=answered, prompts=prompts) if answered == ticket:
                    return prompts_of(requests, prompts)
                case Died(message=message):
                    raise RunnerDied(message)
        time.sleep(_LOOK_S)


def token_bytes_of(info: ModelInfo) -> TokenBytes | None:
    """How to read the model's tokens; None where its tokenizer wrote no file."""
    return TokenBytes(info.tokenizer_path) if info.tokenizer_path else None


def config_for(config: EngineConfig, info: ModelInfo) -> EngineConfig:
    """The configuration with `max_model_len` cut to the model's own."""
    return msgspec.structs.replace(config, max_model_len=min(config.max_model_len, info.max_model_len))


def submit(engine: Engine, request: PromptRequest, encoded: EncodedPrompt) -> str:
    """Enqueue one encoded request and return its id; without a seed it is given one.

    Raises:
        ValueError: it has no tokens, or sampling parameters out of range.
    """
    return enter(engine, request, encoded, request.sampling(lambda: secrets.randbits(31)))


def drain(engine: Engine, *, restarts: int = 0, feed: Feed | None = None) -> Iterator[Record]:
    """Run an engine until it is empty, a record at a time.

    Args:
        restarts: how often a runner that died may be started again; the requests of the fatal step end
            in error, the others start over.
        feed: lets requests in meanwhile.

    Raises:
        RunnerDied: once more than that, or the model's files were changed meanwhile. The record that ends
            its requests has been yielded.
        ModelLoadError: the model could not be loaded again.
    """
    while True:
        if feed is not None:
            feed.enter(engine)
        if not engine.has_work:
            break
        try:
            record = engine.step()
        except StepLost as lost:
            yield lost.record
            if not restarts:
                raise RunnerDied(str(lost)) from None
            restarts -= 1
            ready = wait_until_ready(engine.runner)
            if ready.info.fingerprint != engine.info.fingerprint:
                words = other_model(str(lost))
                yield engine.write_off(words)
                raise RunnerDied(words) from None
            engine.reset(ready.epoch, str(lost))
            continue
        if record is None:
            raise RuntimeError("an engine with work had nothing to do")
        yield record
    quiet = engine.take_quiet_record()
    if quiet is not None:
        yield quiet
