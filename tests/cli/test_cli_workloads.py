"""Files people have, from file to answers: every format through `run`, and OpenAI batch output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ended
from tests.cli.word_runner import WordRunner

DATA = Path(__file__).parent.parent / "data" / "workloads"
Cbtui = Callable[..., Ended]


def answers(text: str) -> dict[str, dict[str, Any]]:
    return {line["custom_id"]: line for line in map(json.loads, text.splitlines())}


@pytest.mark.parametrize(
    ("name", "code", "requests"),
    [
        ("azure_trace.csv", 0, 5),
        ("burstgpt.csv", 0, 5),
        ("mooncake.jsonl", 0, 5),
        ("vidur.csv", 0, 5),
        ("openai_batch.jsonl", 0, 4),
        ("sharegpt.json", 1, 2),
        ("tutorial.jsonl", 0, 5),
    ],
)
def test_every_format_runs(cbtui: Cbtui, name: str, code: int, requests: int) -> None:
    ended = cbtui("run", str(DATA / name), "--json", "--limit", "5")
    assert ended.code == code
    assert len(ended.out.splitlines()) == requests
    piped = cbtui("run", "-", "--json", "--limit", "5", stdin=(DATA / name).read_bytes())
    assert piped.code == code and len(piped.out.splitlines()) == requests


def test_lengths_are_those_of_the_trace(cbtui: Cbtui) -> None:
    ended = cbtui(
        "run", str(DATA / "vidur.csv"), "--json", "--limit", "3", runner=lambda: WordRunner(eos_token_id=300)
    )
    lines = sorted(map(json.loads, ended.out.splitlines()), key=lambda line: line["index"])
    assert [(line["prompt_tokens"], line["output_tokens"]) for line in lines] == [(96, 8), (96, 32), (8, 64)]


def test_arrival_times_are_kept(cbtui: Cbtui) -> None:
    data = b'{"prompt": "a", "output_tokens": 1, "arrival_s": 5}\n{"prompt": "b", "output_tokens": 1}'
    ended = cbtui("run", "-", "--json", "--arrivals", "100", stdin=data)
    assert [json.loads(line)["index"] for line in ended.out.splitlines()] == [1, 0]


def test_answers_have_the_form_of_openais_batches(cbtui: Cbtui, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ended = cbtui("run", str(DATA / "openai_batch.jsonl"), "-o", str(out))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    found = answers(out.read_text("utf-8"))
    assert set(found) == {"greet", "sum", "unicode", "plain"}
    response = found["sum"]["response"]
    assert found["sum"]["error"] is None and response["status_code"] == 200
    body = response["body"]
    assert body["object"] == "chat.completion" and body["model"] == "fake"
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "length", "assistant")
    assert body["usage"]["completion_tokens"] == 16
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 16
    plain = found["plain"]["response"]["body"]
    assert plain["object"] == "text_completion" and isinstance(plain["choices"][0]["text"], str)
    assert len({line["id"] for line in found.values()}) == 4


def test_failures_are_errors_the_others_are_answered_and_the_code_is_1(cbtui: Cbtui) -> None:
    def line(name: str, **body: object) -> str:
        return json.dumps({"custom_id": name, "url": "/v1/completions", "body": {"max_tokens": 2} | body})

    lines = [
        line("good", prompt="The"),
        line("many", prompt="The", n=3),
        line("mute", prompt="unspeakable"),
        line("long", prompt="is " * 60),
        "{",
    ]
    ended = cbtui("run", "-", "-o", "-", "--num-blocks", "2", stdin="\n".join(lines).encode())
    assert ended.code == 1
    found = answers(ended.out)
    assert found["good"]["response"]["status_code"] == 200
    for name, words in (
        ("many", "`n` must be 1"),
        ("mute", "unspeakable"),
        ("long", ""),
        ("line-5", "not JSON"),
    ):
        assert found[name]["response"] is None
        assert words in found[name]["error"]["message"]
    assert found["long"]["error"]["code"] == "ignored"
    assert [text.split(":")[1] for text in ended.err.splitlines()][:2] == [
        " standard input, line 2",
        " standard input, line 5",
    ]


def test_answers_that_cannot_be_written_are_said_before_a_model_is_loaded(cbtui: Cbtui) -> None:
    ended = cbtui("run", str(DATA / "tutorial.jsonl"), "-o", "/nowhere/at/all")
    assert (ended.code, ended.runner) == (2, None) or ended.runner is None
    assert "cannot write /nowhere/at/all" in ended.err


@pytest.mark.parametrize("name", ["sharegpt.json", "azure_trace.csv", "openai_batch.jsonl"])
def test_compare_takes_them_too(cbtui: Cbtui, name: str) -> None:
    ended = cbtui("compare", str(DATA / name), "--limit", "4", "--max-tokens", "5", "--json")
    comparison = json.loads(ended.out)
    assert comparison["identical"] and ended.code == (1 if name == "sharegpt.json" else 0)


def test_a_factor_that_is_none_is_said(cbtui: Cbtui) -> None:
    ended = cbtui("run", "-", "--arrivals", "0", stdin=b"a")
    assert ended.code == 2 and "--arrivals must be a number from 0.001" in ended.err
