"""A policy that raises: every request is still answered, and a sentence says that it was given up."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from engine.scheduling.policies import POLICIES
from tests.cli.conftest import Ended
from tests.faults.faulty import BrokenPolicy

Cbtui = Callable[..., Ended]
PROMPTS = b"a\nb\nc\nd\n"


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "broken", BrokenPolicy(ZeroDivisionError("an order by nothing")))


def test_run_answers_everybody_and_says_it_once(cbtui: Cbtui) -> None:
    ended = cbtui("run", "-", "--json", "--policy", "broken", "--slots", "1", stdin=PROMPTS)
    results = [json.loads(line) for line in ended.out.splitlines()]
    assert [one["finish_reason"] for one in results] == ["length"] * 4
    (said,) = ended.err.splitlines()
    assert "the policy broken raised ZeroDivisionError: an order by nothing; from now on: first come" in said
    assert ended.code == 1


def test_compare_says_it_and_claims_nothing(cbtui: Cbtui) -> None:
    ended = cbtui("compare", "-", "--max-tokens", "6", "--policy", "broken", "--slots", "2", stdin=PROMPTS)
    assert ended.code == 1
    words = " ".join(ended.out.split())
    assert "Failed: the policy broken raised ZeroDivisionError: an order by nothing" in words
    assert "Traceback" not in ended.out + ended.err
