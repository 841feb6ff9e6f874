"""A small engine on a table, for tests of one rule at a time."""

from __future__ import annotations

import msgspec
from scenario import tick_clock

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import Request, SamplingParams
from engine.stream.records import StepRecord


class Table:
    """An engine with the fake model, and everything asked of it."""

    def __init__(self, runner: FakeRunner | None = None, **config: object) -> None:
        runner = runner or FakeRunner()
        self.runner = runner
        runner.keep_plans = True
        self.engine = Engine(
            EngineConfig(**config),  # type: ignore[arg-type]
            runner,
            runner.info,
            clock=tick_clock(),
            token_bytes=lambda token: b"%d " % token,
        )
        self.requests: list[Request] = []
        self.records: list[StepRecord] = []

    def ask(self, prompt: list[int], max_tokens: int = 4, *, priority: int = 0, **params: object) -> Request:
        params = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type,assignment]
        request_id = self.engine.add_request(prompt, params, priority=priority)  # type: ignore[arg-type]
        self.requests.append(self.engine.requests[request_id])
        return self.requests[-1]

    def set(self, *, preempt_surplus: bool = False, **config: object) -> None:
        wanted = msgspec.structs.replace(self.engine.config, **config)
        self.engine.configure(wanted, preempt_surplus=preempt_surplus)

    def step(self, count: int = 1) -> StepRecord:
        for _ in range(count):
            record = self.engine.step()
            assert record is not None
            self.records.append(record)
        return self.records[-1]

    def run(self) -> list[StepRecord]:
        """To the end; the records of these steps."""
        first = len(self.records)
        while self.engine.has_work:
            self.step()
        return self.records[first:]

    @property
    def entered(self) -> list[str]:
        """Request ids in the order they first entered."""
        return [a.request_id for r in self.records for a in r.events.admitted if not a.resumed]


def fed(record: StepRecord) -> dict[str, int]:
    """Tokens fed, by request id."""
    return {segment.request_id: segment.q_len for segment in record.segments}
