"""The tutorial's six requests in every mode: each figure the documentation states, and equality."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from cbtui.cli.console import Look
from cbtui.cli.report import Reported, report
from engine.config import EngineConfig
from engine.fake import FakeRunner
from engine.live.commands import PromptRequest
from engine.mode_runs import run_modes
from engine.runner import RunnerError
from engine.session import encode, token_bytes_of, wait_until_ready
from engine.stream.comparison import Comparison, compare
from engine.stream.ledger import Ledger
from engine.stream.records import Record
from engine.workload import tutorial_workload
from tests.cli.word_runner import FailingRunner, PartingRunner, WordRunner

MODES = ("static", "continuous-padded", "continuous")


def compared(
    slots: int = 3,
    runner: FakeRunner | None = None,
    modes: tuple[str, ...] = MODES,
    requests: list[PromptRequest] | None = None,
    **limits: int,
) -> tuple[Comparison, dict[str, list[Record]]]:
    runner = runner or WordRunner()
    ready = wait_until_ready(runner)
    requests = tutorial_workload() if requests is None else requests
    config = EngineConfig(max_num_seqs=slots, **limits)
    encoded = encode(runner, requests)
    records = run_modes(runner, ready, requests, encoded, config, modes, token_bytes_of(ready.info))
    return compare(records, ready, config), records


@pytest.fixture(scope="module")
def tutorial() -> Comparison:
    return compared()[0]


@pytest.mark.parametrize(
    ("mode", "steps", "finish", "release", "positions", "occupancy"),
    [
        (
            "static",
            480,
            (6, 50, 300, 330, 480, 345),
            (300, 300, 300, 480, 480, 480),
            (1485, 10, 829),
            42.4,
        ),
        ("continuous-padded", 300, (6, 50, 300, 36, 216, 95), None, (692, 46, 0), 67.9),
        ("continuous", 300, (6, 50, 300, 36, 216, 95), None, (646, 0, 0), 67.9),
    ],
)
def test_the_table_at_three_slots(
    tutorial: Comparison,
    mode: str,
    steps: int,
    finish: tuple[int, ...],
    release: tuple[int, ...] | None,
    positions: tuple[int, int, int],
    occupancy: float,
):
    result = tutorial.modes[mode]
    assert result.steps == steps
    assert result.finish_steps == finish
    assert result.release_steps == (release or finish)
    assert (result.token_positions, result.padding_tokens, result.dead_tokens) == positions
    assert round(100 * result.slot_occupancy, 1) == occupancy
    assert (result.prompt_tokens, result.output_tokens) == (41, 611)
    assert [len(ids) for ids in result.token_ids] == [6, 50, 300, 30, 180, 45]
    assert result.finish_reasons == ("length",) * 6


def test_mean_latencies_in_steps_at_three_slots(tutorial: Comparison):
    static, continuous = tutorial.modes["static"], tutorial.modes["continuous"]
    assert static.streaming.ttft_steps == 151
    assert round(continuous.streaming.ttft_steps or 0, 1) == 16.3
    assert round(static.streaming.completion_steps or 0, 1) == 251.8
    assert round(continuous.streaming.completion_steps or 0, 1) == 117.2
    assert static.at_barrier is not None
    assert (static.at_barrier.ttft_steps, static.at_barrier.completion_steps) == (390, 390)
    assert continuous.at_barrier is None


@pytest.mark.parametrize(
    ("slots", "static", "continuous"),
    [(1, 611, 611), (2, 530, 306), (3, 480, 300), (4, 480, 300), (5, 345, 300), (6, 300, 300)],
)
def test_steps_by_number_of_slots(slots: int, static: int, continuous: int):
    comparison, _ = compared(slots)
    steps = [comparison.modes[mode].steps for mode in MODES]
    assert steps == [static, continuous, continuous]
    assert comparison.identical


def test_every_output_is_identical(tutorial: Comparison):
    assert (tutorial.identical, tutorial.verdict, tutorial.differences) == (True, "identical", ())
    assert len({result.token_ids for result in tutorial.modes.values()}) == 1
    assert all(text.startswith(" t") for text in tutorial.modes["static"].texts)


def test_seconds_are_the_engine_s(tutorial: Comparison):
    for result in tutorial.modes.values():
        assert result.elapsed_s > 0
        assert result.output_tokens_per_s == pytest.approx(611 / result.elapsed_s)
        assert 0 < result.step_ms_median < 1000 * result.elapsed_s
        assert 0 < (result.streaming.ttft_s or 0) < (result.streaming.completion_s or 0)


def test_preempted_requests_give_the_same_outputs_and_their_cost_is_counted():
    comparison, _ = compared(num_blocks=24)
    assert comparison.identical
    assert comparison.modes["continuous"].preemptions > 0
    assert comparison.modes["continuous"].recomputed_tokens > 0


def test_requests_that_never_run_have_no_steps():
    requests = [PromptRequest(prompt="a", max_tokens=3), PromptRequest(prompt="a", max_tokens=2000)]
    comparison, _ = compared(requests=requests, num_blocks=4)
    static = comparison.modes["static"]
    assert static.finish_steps == (3, None)
    assert static.release_steps == (3, None)
    assert static.finish_reasons == ("length", "ignored")
    assert comparison.identical


def test_requests_none_of_which_run_have_no_means():
    comparison, _ = compared(requests=[PromptRequest(prompt="a", max_tokens=2000)], num_blocks=4)
    static = comparison.modes["static"]
    assert (static.steps, static.slot_occupancy, static.streaming.ttft_steps) == (0, 0.0, None)


@pytest.mark.parametrize(
    ("make", "verdict"),
    [
        (lambda: PartingRunner(4e-4), "near_tie"),
        (lambda: PartingRunner(2e-3), "mismatch"),
        (lambda: PartingRunner(None), "mismatch"),
        (lambda: PartingRunner(0.5, "bfloat16"), "half_precision"),
        (lambda: PartingRunner(4e-4, "bfloat16"), "near_tie"),
    ],
)
def test_a_first_difference_is_a_near_tie_or_a_mismatch(make: Callable[[], FakeRunner], verdict: str):
    comparison, _ = compared(runner=make())
    assert (comparison.identical, comparison.verdict) == (False, verdict)


def test_a_difference_names_request_step_tokens_and_gap():
    comparison, _ = compared(runner=PartingRunner(2e-3), modes=("continuous-padded", "continuous"))
    (difference,) = comparison.differences
    assert (difference.request, difference.output_index) == (3, 3)
    assert (difference.mode, difference.other) == ("continuous", "continuous-padded")
    assert (difference.step, difference.other_step) == (10, 10)
    assert (difference.token_id, difference.other_token_id) == (301, 300)
    assert (difference.text, difference.other_text) == (" t301", " t300")
    assert difference.gap == pytest.approx(2e-3)


def test_a_failed_forward_is_no_comparison():
    comparison, _ = compared(runner=FailingRunner())
    assert (comparison.identical, comparison.verdict) == (False, "failed")
    assert comparison.modes["static"].errors[0] == "the device is on fire"


def test_a_forward_that_fails_while_warming_up_is_raised():
    runner = FailingRunner()
    runner._arenas_opened = 5
    with pytest.raises(RunnerError, match="on fire"):
        compared(runner=runner)


def test_every_mode_is_warmed_up_before_any_is_measured():
    runner = WordRunner()
    runner.keep_plans = True
    compared(runner=runner)
    starts = [place for place, plan in enumerate(runner.plans) if plan.step == 1]
    assert starts[:4] == [0, 3, 6, 9]


def test_the_comparison_follows_from_the_records_alone():
    comparison, records = compared()
    runner = WordRunner()
    ready = wait_until_ready(runner)
    stored = msgspec.json.encode(records)
    again = compare(msgspec.json.decode(stored, type=dict[str, list[Record]]), ready, EngineConfig())
    assert again == comparison


def test_modes_that_ran_other_requests_are_not_compared():
    _, records = compared(modes=("static",))
    _, others = compared(modes=("continuous",), requests=[PromptRequest(prompt="a")])
    ready = wait_until_ready(WordRunner())
    with pytest.raises(ValueError, match="did not run the same requests"):
        compare(records | others, ready, EngineConfig())


def test_nothing_is_not_compared():
    with pytest.raises(ValueError, match="no mode"):
        compare({}, wait_until_ready(WordRunner()), EngineConfig())


@pytest.mark.parametrize("exact", [False, True])
def test_exact_mode_is_said(exact: bool):
    runner = WordRunner()
    runner.info = msgspec.structs.replace(runner.info, exact=exact)
    comparison, records = compared(runner=runner, requests=[PromptRequest(prompt="a", max_tokens=2)])
    assert comparison.exact == exact
    assert json.loads(msgspec.json.encode(comparison))["exact"] == exact
    ledgers = {mode: Ledger.of(run) for mode, run in records.items()}
    lines = report(Reported(comparison, records, ledgers), Look())
    assert any(f"float32{' exact' if exact else ''}, greedy" in line.plain for line in lines)
