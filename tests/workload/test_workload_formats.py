"""Every workload format: told by content, what it asks for, and how a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.live.commands import PromptRequest
from engine.runner import Message
from engine.workload import Asked, BadLine, format_of, read_workload

DATA = Path(__file__).parents[1] / "data" / "workloads"
FORMATS = {
    "tutorial.jsonl": "custom",
    "openai_batch.jsonl": "OpenAI batch",
    "sharegpt.json": "ShareGPT",
    "azure_trace.csv": "Azure",
    "burstgpt.csv": "BurstGPT",
    "mooncake.jsonl": "Mooncake",
    "vidur.csv": "Vidur",
}


def data(name: str) -> bytes:
    return (DATA / name).read_bytes()


def read(content: bytes, **asked: object) -> tuple[list[PromptRequest], list[BadLine]]:
    lines = read_workload(content, Asked(**asked))  # type: ignore[arg-type]  # a test's own
    requests = [line for line in lines if isinstance(line, PromptRequest)]
    return requests, [line for line in lines if isinstance(line, BadLine)]


@pytest.mark.parametrize(("name", "format_name"), FORMATS.items())
def test_a_format_is_told_by_content(name: str, format_name: str) -> None:
    assert format_of(data(name)).name == format_name
    assert format_of(b"\xef\xbb\xbf\r\n" + data(name).replace(b"\n", b"\r\n")).name == format_name or (
        name.endswith("csv")  # a header must be the first line
    )


@pytest.mark.parametrize(
    ("content", "format_name"),
    [
        (b"", "plain text"),
        (b"hello {", "plain text"),
        (b"[x] a list", "plain text"),
        (b'\n {"a": 1}', "custom"),
        (b'{broken\n{"custom_id": "a", "url": "/v1/completions", "body": {}}', "OpenAI batch"),
        (b'{"id": "a", "conversations": []}', "ShareGPT"),
        (b"Vidur,arrived_at", "plain text"),
    ],
)
def test_what_begins_otherwise(content: bytes, format_name: str) -> None:
    assert format_of(content).name == format_name


def test_openai_batch() -> None:
    requests, bad = read(data("openai_batch.jsonl"))
    assert not bad
    assert [(r.label, r.max_tokens, r.temperature, r.seed) for r in requests] == [
        ("greet", 40, 0.0, None),
        ("sum", 16, 0.0, None),
        ("unicode", 32, 0.7, 7),
        ("plain", 48, 0.0, None),
    ]
    assert requests[0].messages == (
        Message("system", "Answer in one short sentence."),
        Message("user", "Why is the sky blue?"),
    )
    assert (requests[0].prompt, requests[0].verbatim) == ("Why is the sky blue?", False)
    assert (requests[3].prompt, requests[3].verbatim) == ("def fibonacci(n):\n    ", True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n": 2}, "`n` must be 1"),
        ({"tools": [{}]}, "`tools` is not supported"),
        ({"response_format": {"type": "json_object"}}, "`response_format` must be text"),
        ({"messages": []}, "`messages` must be a list"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "may hold text only"),
        ({"max_tokens": None}, "`max_tokens` is missing"),
        ({"temperature": "hot"}, "`temperature` must be a number"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 3}, "top_p"),
        ({"seed": -1}, "`seed`"),
    ],
)
def test_what_an_openai_batch_line_cannot_ask(changes: dict[str, object], reason: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4} | changes
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    (), (bad,) = read(json.dumps(line).encode())
    assert reason in bad.reason and (bad.line, bad.label) == (1, "a")


def test_text_parts_are_joined_and_names_stand_once() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1, "stop": "x", "top_p": 0.5}
    line = json.dumps({"custom_id": "a", "url": "/v1/chat/completions", "body": body}).encode()
    (request,), (bad,) = read(line + b"\n" + line)
    assert (request.messages[0].content, request.stop, request.top_p) == ("ab", ("x",), 0.5)
    assert str(bad) == 'line 2: `custom_id` "a" stands twice'


def test_sharegpt_takes_the_first_human_turn_and_the_replys_length() -> None:
    requests, bad = read(data("sharegpt.json"))
    assert [(r.label, r.prompt) for r in requests] == [
        ("a1", "Name three uses for a paper clip."),
        ("a4", "Explain to a child what a queue is."),
    ]
    assert requests[0].reply == "Holding papers, resetting a router, and cleaning a keyboard."
    assert [str(line) for line in bad] == [
        "entry 2: the conversation begins with the model, so it has no prompt",
        "entry 3: `conversations` is empty",
    ]


@pytest.mark.parametrize(
    ("name", "first", "second", "count"),
    [
        ("azure_trace.csv", (0.0, 96, 8), (0.230982, 96, 32), None),
        ("burstgpt.csv", (0.0, 96, 8), (0.0, 96, 32), 39),
        ("vidur.csv", (0.135881, 96, 8), (0.366863, 96, 32), 40),
        ("mooncake.jsonl", (0.135, 608, 8), (0.366, 1120, 32), 20),
    ],
)
def test_length_traces(
    name: str, first: tuple[float, int, int], second: tuple[float, int, int], count: int | None
) -> None:
    requests, _ = read(data(name))
    assert count is None or len(requests) == count
    for request, (at, prompt, output) in zip(requests, (first, second), strict=False):
        assert request.arrives_s == pytest.approx(at)
        assert request.made_up is not None and request.made_up.num_tokens == prompt
        assert (request.max_tokens, request.ignore_eos, request.verbatim) == (output, True, True)


def test_a_request_without_a_response_is_a_bad_line() -> None:
    _, bad = read(data("burstgpt.csv"))
    assert [str(line) for line in bad] == ["line 7: `Response tokens` must be from 1 to 1,000,000, not 0"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("yesterday,1,1", "`TIMESTAMP` must be a date and time"),
        ("2024-05-10 00:00:00,,1", "`ContextTokens` is missing"),
        ("2024-05-10 00:00:00,many,1", '`ContextTokens` must be a whole number, not "many"'),
        ("2024-05-10 00:00:00,1", "`GeneratedTokens` is missing"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(row: str, reason: str) -> None:
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n2024-05-10 00:00:07.9799600,3,4\n"
    (request,), (bad,) = read(text.encode())
    assert reason in str(bad) and bad.line == 2
    assert request.max_tokens == 4


def test_times_with_and_without_a_zone_can_stand_in_one_file() -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,1,1\n2024-05-10 00:00:02,1,1\n"
    requests, bad = read(text.encode())
    assert not bad and [r.arrives_s for r in requests] == [0.0, 2.0]


def test_a_limit_takes_the_first_requests_and_the_bad_lines_before() -> None:
    lines = read_workload(data("burstgpt.csv"), Asked(), limit=6)
    assert [type(line).__name__ for line in lines] == ["PromptRequest"] * 5 + ["BadLine", "PromptRequest"]
