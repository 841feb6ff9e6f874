"""Latencies, rates and runs, from records made on a clock that a forward moves by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.step.plan import Plan, Reply
from engine.stream.ledger import Ledger
from engine.stream.metrics import RATE_WINDOW_S, RUNS_KEPT, Metrics, MetricsSnapshot, percentile


class Timed(FakeRunner):
    """Every forward takes a tenth of a second of the engine clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def run(self, plan: Plan) -> Reply:
        self.now += 0.1
        return super().run(plan)


class Bench:
    def __init__(self, **config: object) -> None:
        self.runner = Timed()
        self.engine = Engine(
            EngineConfig(**config),  # type: ignore[arg-type]
            self.runner,
            self.runner.info,
            clock=EngineClock(lambda: self.runner.now),
        )
        self.ledger = Ledger()
        self.metrics = Metrics(self.ledger)

    def ask(self, *caps: int, length: int = 3) -> None:
        for cap in caps:
            self.engine.add_request(list(range(length)), SamplingParams(max_tokens=cap))

    def run(self, steps: int = 10_000) -> MetricsSnapshot:
        while steps and self.engine.has_work:
            record = self.engine.step()
            assert record is not None
            self.take(record)
            steps -= 1
        return self.metrics.snapshot()

    def take(self, record: object) -> None:
        self.ledger.apply(record)  # type: ignore[arg-type]
        self.metrics.apply(record)  # type: ignore[arg-type]


def test_ttft_counts_the_wait_and_itl_does_not_count_the_first_token() -> None:
    bench = Bench(max_num_seqs=1)
    bench.ask(4, 2)
    snapshot = bench.run()
    first, second = bench.ledger.stories.values()
    assert (first.ttft_s, second.ttft_s) == (pytest.approx(0.1), pytest.approx(0.5))
    assert (first.queue_s, second.queue_s) == (0.0, pytest.approx(0.4))
    assert (first.e2e_s, second.e2e_s) == (pytest.approx(0.4), pytest.approx(0.6))
    assert len(bench.metrics._itl) == 3 + 1
    assert snapshot.itl_p95_s == pytest.approx(0.1)
    assert first.tpot_s == pytest.approx(0.1)


def test_a_request_of_one_token_has_neither_itl_nor_tpot() -> None:
    bench = Bench()
    bench.ask(1)
    snapshot = bench.run()
    assert snapshot.itl_p50_s is None and snapshot.tpot_p50_s is None
    assert snapshot.ttft_p50_s == pytest.approx(0.1)


def test_rates_are_over_the_window_of_the_engine_clock() -> None:
    bench = Bench(max_num_seqs=2)
    bench.ask(100, 100, length=5)
    snapshot = bench.run(1)
    assert snapshot.prompt_tokens_per_s == pytest.approx(100)
    assert snapshot.output_tokens_per_s == pytest.approx(20)
    assert snapshot.steps_per_s == pytest.approx(10)
    snapshot = bench.run()
    assert snapshot.prompt_tokens_per_s == 0
    assert sum(entry[1] for entry in bench.metrics._window) <= RATE_WINDOW_S + 0.1


def test_shares_of_a_static_run() -> None:
    bench = Bench(mode="static", max_num_seqs=2)
    bench.ask(2, 6)
    snapshot = bench.run()
    assert snapshot.slot_occupancy == pytest.approx(8 / 12)
    assert snapshot.dead_work == pytest.approx(4 / (6 + 10))
    assert snapshot.padding_waste == 0
    (run,) = bench.metrics.runs
    assert (run.steps, run.slot_steps, run.useful, run.dead, run.output_tokens) == (6, 12, 8, 4, 8)


def test_slots_that_stay_empty_while_somebody_waits_are_told_from_those_nobody_needs() -> None:
    short_of_blocks = Bench(max_num_seqs=3, num_blocks=2, block_size=4, max_model_len=8)
    short_of_blocks.ask(4, 4)
    short_of_blocks.run()
    barred = Bench(mode="static", max_num_seqs=3)
    barred.ask(4)
    barred.run(1)
    barred.ask(2)
    barred.run()
    idle = Bench(max_num_seqs=3)
    idle.ask(4)
    idle.run()
    kept = [bench.metrics.runs[0].kept_empty for bench in (short_of_blocks, barred, idle)]
    assert kept == [2, 3, 0], "one slot of two empty ones could have been filled"


def test_a_run_lasts_until_the_engine_is_empty_and_the_same_requests_are_recognised() -> None:
    bench = Bench(max_num_seqs=2)
    bench.ask(3, 2)
    bench.run(1)
    bench.ask(2)
    assert bench.metrics.current_run is not None
    bench.run()
    assert bench.metrics.current_run is None
    bench.engine.set_mode("static")
    bench.ask(3, 2, 2)
    bench.run()
    first, second = bench.metrics.runs
    assert first.workload == second.workload and first.num_requests == second.num_requests == 3
    assert first.arrivals != second.arrivals, "one arrived after a step, then all at once"
    assert (first.modes, second.modes) == (("continuous",), ("static",))
    assert second.first_step == first.last_step + 1


def test_a_mode_switched_within_a_run_is_named_in_order() -> None:
    bench = Bench()
    bench.ask(6)
    bench.run(2)
    bench.engine.set_mode("static")
    bench.run()
    assert bench.metrics.runs[0].modes == ("continuous", "static")


def test_cancelling_all_before_the_first_step_leaves_no_run() -> None:
    bench = Bench()
    bench.ask(3)
    bench.engine.abort_request("r0")
    record = bench.engine.take_quiet_record()
    assert record is not None
    bench.take(record)
    assert bench.metrics.runs == [] and bench.metrics.current_run is None
    bench.ask(2)
    bench.run()
    (run,) = bench.metrics.runs
    assert run.num_requests == 1
    assert bench.metrics.snapshot().num_finished == 2


def test_requests_are_not_taken_for_others_that_read_alike() -> None:
    def workload(*asks: tuple[list[int], int]) -> bytes:
        bench = Bench()
        for prompt, max_tokens in asks:
            bench.engine.add_request(prompt, SamplingParams(max_tokens=max_tokens))
        bench.run()
        return bench.metrics.runs[0].workload

    kinds = [
        workload(([1, 2], 3)),
        workload(([1], 2)),
        workload(([1], 2), ([3], 2)),
        workload(([3], 2), ([1], 2)),
        workload(([1, 2], 3), ([4], 1)),
        workload(([1, 2, 3], 4)),
    ]
    assert len(set(kinds)) == len(kinds)
    assert workload(([1, 2], 3), ([4], 1)) == kinds[4]


def test_only_the_newest_runs_are_kept_but_all_are_counted() -> None:
    bench = Bench()
    for _ in range(RUNS_KEPT + 5):
        bench.ask(1)
        bench.run()
    assert len(bench.metrics.runs) == RUNS_KEPT and bench.metrics.num_runs == RUNS_KEPT + 5
    assert bench.metrics.runs[-1].last_step == bench.engine.step_number


def test_before_the_first_step_there_are_no_figures() -> None:
    snapshot = Bench().metrics.snapshot()
    assert snapshot.output_tokens_per_s is None and snapshot.ttft_p50_s is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_percentile_is_the_nearest_rank(values: list[float], share: float) -> None:
    rank = math.ceil(round(share * len(values), 9))
    assert percentile(values, share) == sorted(values)[rank - 1]
    assert percentile([], share) is None


def test_a_copy_folds_on_as_the_original_did_though_the_ledger_is_ahead() -> None:
    bench = Bench(max_num_seqs=2)
    records, snapshots, copies = [], [], []
    for caps in ((4, 9, 2, 5), (3, 3)):
        bench.ask(*caps)
        while (record := bench.engine.step()) is not None:
            bench.take(record)
            records.append(record)
            snapshots.append(bench.metrics.snapshot())
            copies.append(bench.metrics.copy())
    for start in range(len(records)):
        metrics = copies[start]
        for number in range(start + 1, len(records)):
            metrics.apply(records[number])
            assert metrics.snapshot() == snapshots[number]
    assert bench.metrics.snapshot() == snapshots[-1]
