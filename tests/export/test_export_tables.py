"""The CSV tables, read back by a reader that knows nothing of cbtui."""

from __future__ import annotations

import csv
import io

import pytest
from made_runs import HOSTILE, TRACES, crowded_run, hostile_run, recorded

from cbtui.export.run import RecordedRun
from cbtui.export.tables import REQUESTS, STEPS, tables


def read(run: RecordedRun, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tables(run)[name], newline=""), strict=True))


@pytest.mark.parametrize("mode", TRACES)
def test_a_row_a_request_and_a_row_a_step(mode: str) -> None:
    run = recorded(mode)
    requests, steps = read(run, REQUESTS), read(run, STEPS)
    assert [row["request_id"] for row in requests] == [story.request_id for story in run.stories]
    assert [int(row["step"]) for row in steps] == [step.step for step in run.steps]
    made = sum(len(story.output_token_ids) for story in run.stories)
    assert sum(int(row["output_tokens"]) for row in steps) == made
    assert sum(int(row["output_tokens"]) for row in requests) == made
    for kind in ("prompt", "decode", "recomputed", "dead", "padding", "rejected"):
        total = sum(getattr(step.tokens, kind) for step in run.steps)
        assert sum(int(row[f"{kind}_tokens"]) for row in steps) == total


def test_latencies_are_the_ledgers() -> None:
    run = recorded("continuous")
    for row, story in zip(read(run, REQUESTS), run.stories, strict=True):
        for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s"):
            assert float(row[name]) == pytest.approx(getattr(story, name), abs=1e-6)
        assert row["output"] == run.ledger.output_text(story)


def test_any_text_comes_back_to_the_letter() -> None:
    run = hostile_run()
    assert [row["prompt"] for row in read(run, REQUESTS)] == list(HOSTILE)


def test_what_there_is_not_is_empty() -> None:
    run = recorded("switched")
    unfinished = [row for row in read(run, REQUESTS) if not row["finish_reason"]]
    assert unfinished and all(row["e2e_s"] == row["end_s"] == "" for row in unfinished)
    never = [row for row in unfinished if not row["first_step"]]
    assert never and all(row["slot"] == row["ttft_s"] == "" for row in never)


def test_preemptions_are_counted() -> None:
    run = crowded_run()
    preempted = sum(int(row["preemptions"]) for row in read(run, REQUESTS))
    assert preempted == sum(int(row["preempted"]) for row in read(run, STEPS)) > 0
