"""A finished request is run again alone: the right ones pass, and one wrong index anywhere is found, with
the place where it shows first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from served_run import run, verdicts

import engine.fake
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.runner import ForwardError, RunnerDied
from engine.scheduling.modes import MODES
from engine.step.check import Check, Checked
from engine.step.geometry import ArenaShape, Geometry, lay_out, read_cells
from engine.step.plan import Plan, PlanRow
from engine.stream.records import NEAR_TIE
from engine.verify.served import FAR, Served, judged, pieces
from engine.verify.verifier import MOST_IN_PIECE, MOST_WAITING, Verifier, check_all

PROMPTS = [[1, 2, 3], [4, 5, 6, 7], [8, 9], [10] * 6]
FAULTY_STEP = 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tight", [False, True], ids=["roomy", "preempting"])
def test_every_request_of_a_right_run_is_the_same_alone(mode: str, tight: bool) -> None:
    runner = FakeRunner()
    limits = {"num_blocks": 12, "block_size": 2, "max_num_batched_tokens": 7} if tight else {}
    records = run(runner, runner.info, PROMPTS, max_num_seqs=3, mode=mode, prefix_caching=tight, **limits)
    found = verdicts(runner, records)
    assert [(one.verdict, one.num_tokens, one.drift) for one in found] == [("same", 8, 0.0)] * 4
    if tight and mode == "continuous":
        assert any(record.events.preempted for record in records)


def test_a_sliding_window_is_the_same_alone() -> None:
    runner = FakeRunner(window=3)
    found = verdicts(runner, run(runner, runner.info, PROMPTS))
    assert [one.verdict for one in found] == ["same"] * 4


def _moved(name: str) -> Callable[[Plan, ArenaShape], Geometry]:
    """One number of the second row is wrong in one step."""

    def wrong(plan: Plan, arena: ArenaShape) -> Geometry:
        geometry = lay_out(plan, arena)
        if plan.step != FAULTY_STEP:
            return geometry
        values = list(getattr(geometry, name))
        place = geometry.logits_indices[1]
        values[place] = arena.padding_cell - 1 if name == "write_index" else values[place] + 1
        return msgspec.structs.replace(geometry, **{name: values})

    return wrong


def _wrong_block(row: PlanRow, arena: ArenaShape) -> list[int]:
    if row.request_id == "r1" and row.output_index == FAULTY_STEP - 1:
        row = msgspec.structs.replace(row, block_ids=[row.block_ids[0] + 1, *row.block_ids[1:]])
    return read_cells(row, arena)


BROKEN: dict[str, Callable[[], FakeRunner]] = {
    "position": lambda: FakeRunner(geometry=_moved("position_ids")),
    "token": lambda: FakeRunner(geometry=_moved("input_ids")),
    "write index": lambda: FakeRunner(geometry=_moved("write_index")),
    "block id": lambda: FakeRunner(reader=_wrong_block),
}


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
@pytest.mark.parametrize("fault", BROKEN)
def test_one_wrong_index_is_found_where_it_shows_first(mode: str, fault: str) -> None:
    runner = BROKEN[fault]()
    found = verdicts(runner, run(runner, runner.info, PROMPTS[:3], mode=mode, block_size=2))
    assert [one.verdict for one in found] == ["same", "differs", "same"]
    wrong = found[1]
    assert (wrong.output_index, wrong.step) == (FAULTY_STEP - 1, FAULTY_STEP)
    assert wrong.token_id != wrong.alone_token_id and wrong.gap is not None and wrong.gap >= NEAR_TIE


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "continuous"])
@pytest.mark.parametrize(
    "shift", [(-1, 0), (1, 0), (0, -1)], ids=["one before", "one missing", "own key missing"]
)
def test_one_wrong_mask_run_is_found(
    mode: str, shift: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = engine.fake.query_run

    def wrong(span: object, offset: int, window: int | None) -> tuple[int, int]:
        start, stop = right(span, offset, window)  # type: ignore[arg-type]
        if span.position != 4 or not start + shift[0] >= 0:  # type: ignore[attr-defined]
            return start, stop
        return start + shift[0], stop + shift[1]

    monkeypatch.setattr(engine.fake, "query_run", wrong)
    runner = FakeRunner()
    found = verdicts(runner, run(runner, runner.info, PROMPTS[:3], mode=mode))
    assert "differs" in [one.verdict for one in found]


def test_drawn_requests_and_those_without_a_token_are_not_checked() -> None:
    runner = FakeRunner()
    asked = [
        SamplingParams(max_tokens=2),
        SamplingParams(max_tokens=2, temperature=0.8, seed=1),
        SamplingParams(max_tokens=2, temperature=0.8, top_k=1),
        SamplingParams(max_tokens=2),
    ]
    records = run(runner, runner.info, [[1], [2], [3], [4] * 9], asked, max_model_len=8)
    assert [one.request_id for one in verdicts(runner, records)] == ["r0", "r2"]


# -- the verdict ------------------------------------------------------------------------------


def _judge(
    choices: list[int], gaps: list[float], drifts: tuple[float, ...] = (0.0, 0.0, 0.0), dtype: str = "float32"
) -> object:
    served = Served("r0", (1,), [5, 6, 7], [1, 2, 4], [-1.0, -1.0, -1.0])
    verdict = judged(served, [Checked(choices, gaps, [-1.0 - drift for drift in drifts])], dtype)
    return verdict.verdict, verdict.output_index, verdict.step


SMALL, LARGE = NEAR_TIE / 2, NEAR_TIE * 2


@pytest.mark.parametrize(
    ("choices", "gaps", "verdict"),
    [
        ([5, 6, 7], [0, 0, 0], ("same", None, None)),
        ([5, 9, 7], [0, SMALL, 0], ("near_tie", 1, 2)),
        ([5, 9, 7], [0, 0.0, 0], ("near_tie", 1, 2)),
        ([5, 9, 9], [0, SMALL, LARGE], ("differs", 2, 4)),
        ([9, 9, 9], [LARGE, SMALL, LARGE], ("differs", 0, 1)),
    ],
)
def test_a_near_tie_is_said_as_such_and_hides_no_difference_after_it(
    choices: list[int], gaps: list[float], verdict: object
) -> None:
    assert _judge(choices, gaps) == verdict


def test_the_same_tokens_with_other_log_probabilities_differ() -> None:
    assert _judge([5, 6, 7], [0, 0, 0], (0.0, 0.0, 2 * FAR)) == ("differs", 2, 4)
    assert _judge([5, 6, 7], [0, 0, 0], (0.0, FAR / 2, 0.0)) == ("same", None, None)
    assert _judge([5, 6, 7], [0, 0, 0], (0.0, 0.0, float("nan"))) == ("differs", 2, 4)


def test_in_half_precision_nothing_is_claimed() -> None:
    assert _judge([5, 6, 9], [0, 0, LARGE], dtype="bfloat16") == ("half_precision", 2, 4)
    assert _judge([5, 6, 7], [0, 0, 0], (0.0, 0.0, 2 * FAR), dtype="bfloat16") == ("same", None, None)


# -- pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 5, 100])
def test_pieces_of_any_length_feed_everything_once_and_judge_every_output(length: int) -> None:
    prompt, outputs = [1, 2, 3, 4], [5, 6, 7]
    found = list(pieces(1, prompt, outputs, lambda: length))
    assert [token for piece in found for token in piece.token_ids] == [1, 2, 3, 4, 5, 6]
    assert [token for piece in found for token in piece.served] == outputs
    assert [piece.is_last for piece in found] == [False] * (len(found) - 1) + [True]
    for piece in found:
        assert len(piece.served) <= len(piece.token_ids) <= length


def test_a_piece_is_as_long_as_there_is_time_for() -> None:
    class Timed(FakeRunner):
        """A token takes a hundredth of a second, on the test's clock."""

        now = 0.0

        def check(self, check: Check) -> Checked:
            self.now += len(check.token_ids) / 100
            self.fed.append(len(check.token_ids))
            return super().check(check)

    runner = Timed()
    records = run(runner, runner.info, [[1] * 200], max_num_batched_tokens=512)
    for most_s, longest in ((0.1, 10), (1.0, 100), (1000.0, MOST_IN_PIECE)):
        runner.fed = []
        verifier = Verifier(runner, lambda: runner.now, most_s=most_s)
        verifier.begin(1, "float32")
        for record in records:
            verifier.apply(record)
        assert [one.verdict for one in check_all(verifier)] == ["same"]
        assert max(runner.fed[1:]) <= longest and runner.fed[0] == 16


# -- what can happen to a check ---------------------------------------------------------------


class FailsAt(FakeRunner):
    """A check of the given request's first token fails as told."""

    def __init__(self, token: int, error: Exception) -> None:
        super().__init__()
        self._token, self._error = token, error
        self.num_failures = 0

    def check(self, check: Check) -> Checked:
        if check.start == 0 and check.token_ids[0] == self._token:
            self.num_failures += 1
            raise self._error
        return super().check(check)


def test_a_check_that_fails_is_no_verdict_and_the_next_is_checked() -> None:
    runner = FailsAt(4, ForwardError("no memory"))
    found = verdicts(runner, run(runner, runner.info, PROMPTS[:3]))
    assert [(one.verdict, one.error) for one in found] == [
        ("same", ""),
        ("unchecked", "no memory"),
        ("same", ""),
    ]


def test_a_check_the_model_dies_of_is_not_tried_again() -> None:
    runner = FailsAt(4, RunnerDied("killed"))
    records = run(runner, runner.info, PROMPTS[:3])
    verifier = Verifier(runner)
    verifier.begin(1, "float32")
    for record in records:
        verifier.apply(record)
    found = []
    while len(verifier):
        try:
            verdict = verifier.turn()
        except RunnerDied:
            verifier.begin(2, "float32")
        else:
            found += [verdict] if verdict else []
    assert {one.request_id: one.verdict for one in found} == {"r0": "same", "r1": "unchecked", "r2": "same"}
    assert runner.num_failures == 1


def test_without_a_model_the_rest_gets_no_verdict() -> None:
    runner = FailsAt(1, RunnerDied("killed"))
    found = verdicts(runner, run(runner, runner.info, PROMPTS[:3]))
    assert [(one.verdict, one.error) for one in found] == [("unchecked", "killed")] * 3


def test_what_was_under_way_when_the_model_was_started_again_begins_anew() -> None:
    runner = FakeRunner()
    verifier = Verifier(runner)
    verifier.begin(1, "float32")
    for record in run(runner, runner.info, [[1] * 40]):
        verifier.apply(record)
    assert verifier.turn() is None
    runner.start()
    verifier.begin(2, "float32")
    assert [one.verdict for one in check_all(verifier)] == ["same"]


def test_more_than_can_wait_are_said_to_be_unchecked() -> None:
    runner = FakeRunner()
    prompts = [[n % 1000, n // 1000] for n in range(MOST_WAITING + 3)]
    records = run(runner, runner.info, prompts, SamplingParams(max_tokens=1), max_num_seqs=64)
    found = verdicts(runner, records)
    assert len(found) == MOST_WAITING + 3
    left = [one for one in found if one.verdict == "unchecked"]
    assert len(left) == 3 and all("1,000" in one.error for one in left)
