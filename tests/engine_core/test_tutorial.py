"""The tutorial's six requests on the fake runner with their real caps: every figure the README states."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics
from engine.stream.records import StepRecord

CAPS = [6, 50, 300, 30, 180, 45]
PROMPT_LENGTHS = [5, 5, 7, 10, 7, 7]


def run(mode: str, slots: int) -> tuple[list[StepRecord], Ledger, Metrics]:
    runner = FakeRunner()
    engine = Engine(EngineConfig(mode=mode, max_num_seqs=slots), runner, runner.info)
    for number, (cap, length) in enumerate(zip(CAPS, PROMPT_LENGTHS, strict=True)):
        prompt = [number * 20 + place for place in range(length)]
        engine.add_request(prompt, SamplingParams(max_tokens=cap, ignore_eos=True))
    ledger = Ledger()
    metrics = Metrics(ledger)
    records = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        ledger.apply(record)
        metrics.apply(record)
        records.append(record)
    return records, ledger, metrics


@pytest.mark.parametrize(
    ("mode", "steps", "finish_steps", "release_steps", "positions"),
    [
        ("static", 480, [6, 50, 300, 330, 480, 345], [300, 300, 300, 480, 480, 480], (1485, 10, 829)),
        ("continuous-padded", 300, [6, 50, 300, 36, 216, 95], [6, 50, 300, 36, 216, 95], (692, 46, 0)),
        ("continuous", 300, [6, 50, 300, 36, 216, 95], [6, 50, 300, 36, 216, 95], (646, 0, 0)),
    ],
)
def test_three_slots(
    mode: str, steps: int, finish_steps: list[int], release_steps: list[int], positions: tuple[int, int, int]
) -> None:
    records, ledger, metrics = run(mode, 3)
    assert len(records) == steps
    stories = list(ledger.stories.values())
    assert [s.finish_step for s in stories] == finish_steps
    assert [s.release_step for s in stories] == release_steps
    assert positions == (
        sum(r.tokens.total for r in records),
        sum(r.tokens.padding for r in records),
        sum(r.tokens.dead for r in records),
    )
    (only,) = metrics.runs
    assert only.output_tokens == only.useful == 611
    assert only.slot_steps == 3 * steps
    assert round(100 * only.useful / only.slot_steps, 1) == (42.4 if mode == "static" else 67.9)


@pytest.mark.parametrize(
    ("slots", "static", "continuous"),
    [(1, 611, 611), (2, 530, 306), (3, 480, 300), (4, 480, 300), (5, 345, 300), (6, 300, 300)],
)
def test_steps_by_slots(slots: int, static: int, continuous: int) -> None:
    assert len(run("static", slots)[0]) == static
    assert len(run("continuous-padded", slots)[0]) == continuous
    assert len(run("continuous", slots)[0]) == continuous


def test_all_modes_give_the_same_outputs() -> None:
    outputs = [
        [story.output_token_ids for story in run(mode, 3)[1].stories.values()]
        for mode in ("static", "continuous-padded", "continuous")
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_admission_log_of_the_continuous_run() -> None:
    records, _, _ = run("continuous", 3)
    entered = [(a.request_id, a.slot, r.step - 1) for r in records for a in r.events.admitted]
    assert entered == [("r0", 0, 0), ("r1", 1, 0), ("r2", 2, 0), ("r3", 0, 6), ("r4", 0, 36), ("r5", 1, 50)]


def test_step_1_packs_17_tokens_and_step_7_packs_12_with_22_cached() -> None:
    records, _, _ = run("continuous", 3)
    first, seventh = records[0], records[6]
    assert first.shape == (1, 17) and [s.q_len for s in first.segments] == [5, 5, 7]
    assert seventh.shape == (1, 12) and [s.q_len for s in seventh.segments] == [10, 1, 1]
    assert sum(s.num_cached for s in seventh.segments) == 22
    assert [(s.kind, s.position) for s in seventh.segments] == [
        ("prefill", 0),
        ("decode", 10),
        ("decode", 12),
    ]
