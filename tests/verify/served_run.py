"""A run to its end and the verdicts on it, for tests that put a fault into the run."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import EngineConfig
from engine.engine import Engine
from engine.request import SamplingParams
from engine.runner import ModelInfo, ModelRunner
from engine.session import drain
from engine.stream.records import Record, Verification
from engine.verify.verifier import Verifier, check_all

EIGHT = SamplingParams(max_tokens=8)


def run(
    runner: ModelRunner,
    info: ModelInfo,
    prompts: Sequence[list[int]],
    params: SamplingParams | Sequence[SamplingParams] = EIGHT,
    **config: object,
) -> list[Record]:
    """The records of requests that arrive together."""
    engine = Engine(EngineConfig(**config), runner, info)  # type: ignore[arg-type]  # a test's settings
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    for prompt, one in zip(prompts, each, strict=True):
        engine.add_request(prompt, one)
    return list(drain(engine))


def verdicts(runner: ModelRunner, records: Sequence[Record], dtype: str = "float32") -> list[Verification]:
    """What checking the run alone gives, in the order of arrival."""
    verifier = Verifier(runner)
    verifier.begin(1, dtype)
    for record in records:
        verifier.apply(record)
    return sorted(check_all(verifier), key=lambda one: int(one.request_id[1:]))
