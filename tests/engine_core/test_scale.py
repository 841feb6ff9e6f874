"""What a step costs does not depend on how many wait or how much has been; memory levels off.

Cost is counted in function calls, not in time: it is the same on every machine.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.live.channels import History
from engine.request import SamplingParams
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES
from engine.step.plan import Plan, Reply, SampledToken


class BareRunner(FakeRunner):
    """Answers at once: what is left is the engine's own work."""

    def run(self, plan: Plan) -> Reply:
        sampled = [
            SampledToken(256 + (7 * plan.step + place) % 700, -0.5) if row.sampling else None
            for place, row in enumerate(plan.rows)
        ]
        return Reply(plan.epoch, plan.step, 0.0, 0.0, sampled)


def engine_with(waiting: int, slots: int = 64, max_tokens: int = 100, **config: object) -> Engine:
    runner = BareRunner()
    wanted = {"num_blocks": 4096, **config}
    engine = Engine(
        EngineConfig(max_num_seqs=slots, **wanted),  # type: ignore[arg-type]
        runner,
        runner.info,
        token_bytes=lambda token: b"%d " % token,
    )
    add(engine, waiting, max_tokens)
    engine.take_quiet_record()
    return engine


def add(engine: Engine, count: int, max_tokens: int) -> None:
    for number in range(count):
        prompt = [(13 * number + place) % 900 for place in range(32)]
        engine.add_request(prompt, SamplingParams(max_tokens=max_tokens))


def calls(work: Callable[[], object]) -> int:
    """Function calls, of Python and of C, while something is done."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("mode", MODES)
def test_a_step_with_64_slots_costs_the_same_with_100_and_with_2000_waiting(mode: str) -> None:
    costs = []
    for waiting in (164, 2064):
        engine = engine_with(waiting, mode=mode)
        engine.step(), engine.step()
        costs.append(calls(engine.step))
    assert costs[1] <= 1.02 * costs[0]


@pytest.mark.parametrize("policy", POLICIES)
def test_admitting_costs_no_more_than_the_logarithm_of_the_queue(policy: str) -> None:
    costs = []
    for waiting in (100, 6400):
        engine = engine_with(waiting, slots=4, max_tokens=1, policy=policy)
        engine.step()
        costs.append(calls(engine.step))
    assert costs[1] <= 1.5 * costs[0]


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_step_costs_the_same_after_1000_steps(prefix_caching: bool) -> None:
    engine = engine_with(300, slots=8, max_tokens=60, prefix_caching=prefix_caching)
    costs, taken = [], []
    for _ in range(2):
        while True:  # the next step that neither admits nor ends anybody
            cost = calls(lambda: taken.append(engine.step()))
            events = taken.pop().events
            if not (events.admitted or events.finished or events.blocks_allocated):
                break
        costs.append(cost)
        for _ in range(1000):
            engine.step()
    assert costs[1] <= 1.05 * costs[0]


def test_cancelled_requests_do_not_pile_up_in_the_queue() -> None:
    engine = engine_with(1, slots=1, policy="priority", max_tokens=1000)
    for _ in range(50):
        ids = [engine.add_request([1, 2], SamplingParams(), priority=9) for _ in range(20)]
        for request_id in ids:
            engine.abort_request(request_id)
    assert len(engine.scheduler.waiting) == 1
    assert len(engine.scheduler.waiting._heap) <= 4


@pytest.mark.long
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_memory_levels_off_in_100_000_steps(prefix_caching: bool) -> None:
    engine = engine_with(
        0, slots=4, num_blocks=64, block_size=4, policy="shortest-first", prefix_caching=prefix_caching
    )
    history = History(limit=500)
    sizes = {}
    tracemalloc.start()
    try:
        for step in range(1, 100_001):
            if len(engine.scheduler.waiting) < 8:
                add(engine, 8, 5 + step % 40)
                newest = next(reversed(engine.requests))
                if step % 3 == 0:
                    engine.abort_request(newest)
            record = engine.step()
            assert record is not None
            history.append(record)
            if step in (20_000, 100_000):
                gc.collect()
                sizes[step] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sizes[100_000] < 1.05 * sizes[20_000] + 100_000
