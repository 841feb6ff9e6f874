"""Runs the same requests in several modes, one after another, for `engine.stream.comparison` to compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NoReturn

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine
from engine.live.commands import PromptRequest
from engine.live.feed import Entry, Feed
from engine.runner import EncodedPrompt, ModelRunner, Ready, RunnerError
from engine.session import drain, submit
from engine.stream.records import Record, StepRecord

#: Steps of a mode run unmeasured first, so that no mode pays for the machine's warming up.
WARM_UP_STEPS = 3


def run_modes(
    runner: ModelRunner,
    ready: Ready,
    requests: Sequence[PromptRequest],
    encoded: Sequence[EncodedPrompt],
    config: EngineConfig,
    modes: Sequence[str],
    token_bytes: Callable[[int], bytes] | None = None,
    on_record: Callable[[str, Record], None] | None = None,
    *,
    arrivals: float | None = None,
) -> dict[str, list[Record]]:
    """Run the requests in each mode, in a fresh engine each, and return the records.

    Every mode is warmed up before any is measured.

    Args:
        on_record: told of every measured record, outside of the engine's clock.
        arrivals: requests arrive at their own times, so many times as fast; None: all at once.

    Raises:
        RunnerError: the runner died, or there is no memory for the KV cache.
    """

    def engine_in(mode: str) -> Engine:
        in_mode = msgspec.structs.replace(config, mode=mode)
        return Engine(in_mode, runner, ready.info, token_bytes=token_bytes, n_top=2, epoch=ready.epoch)

    for mode in modes:
        engine = engine_in(mode)
        for request, prompt in zip(requests[: config.max_num_seqs], encoded, strict=False):
            submit(engine, request, prompt)
        for record in islice(drain(engine), WARM_UP_STEPS):
            if isinstance(record, StepRecord) and record.failed:
                raise RunnerError("; ".join(record.events.errors) or "the first forward failed")
    records: dict[str, list[Record]] = {}
    for mode in modes:
        engine = engine_in(mode)
        entries = [Entry(n, *pair) for n, pair in enumerate(zip(requests, encoded, strict=True), 1)]
        feed = Feed(entries, arrivals, submit, on_refused=_refuse)
        records[mode] = []
        for record in drain(engine, feed=feed):
            records[mode].append(record)
            if on_record is not None:
                on_record(mode, record)
    return records


def _refuse(entry: Entry, why: str) -> NoReturn:
    """Requests that do not all run cannot be compared."""
    raise ValueError(f"request {entry.number}: {why}")
