"""`cbtui compare` on the default model, as the real command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.model


def compared(*arguments: str) -> dict[str, object]:
    """The data of a comparison; its exit code must be 0."""
    words = (sys.executable, "-m", "cbtui", "compare", "--json", *arguments)
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def positions(data: dict[str, object]) -> list[int]:
    return [mode["token_positions"] for mode in data["modes"].values()]  # type: ignore[attr-defined]


def test_a_few_tokens_of_the_tutorial_are_identical_in_every_mode():
    data = compared("--max-tokens", "3")
    assert data["identical"] is True
    assert data["device"] == "cpu" and data["dtype"] == "float32"
    assert [request["prompt_tokens"] for request in data["requests"]] == [5, 5, 7, 10, 7, 7]  # type: ignore[attr-defined]
    assert data["modes"]["continuous"]["texts"][0].startswith(" Paris")  # type: ignore[index]


@pytest.mark.long
def test_all_611_tokens_of_the_tutorial_are_identical_in_every_mode():
    data = compared()
    assert data["identical"] is True
    assert [mode["steps"] for mode in data["modes"].values()] == [480, 300, 300]  # type: ignore[attr-defined]
    assert positions(data) == [1485, 692, 646]
    assert data["modes"]["static"]["output_tokens"] == 611  # type: ignore[index]
