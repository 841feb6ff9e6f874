"""Request files: what is read, and how a bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.live.commands import PromptRequest
from engine.workload import (
    Asked,
    BadLine,
    WorkloadError,
    custom,
    read_workload,
    require_all,
    tutorial_workload,
)

DATA = Path(__file__).parents[1] / "data"


def read_json_lines(data: bytes, max_tokens: int | None = None) -> list[PromptRequest | BadLine]:
    return list(custom.read(data, Asked(max_tokens=max_tokens)))


def reasons(data: bytes, max_tokens: int | None = None) -> list[tuple[int, str]]:
    lines = read_json_lines(data, max_tokens)
    return [(line.line, line.reason) for line in lines if isinstance(line, BadLine)]


def test_the_built_in_six_are_raw_and_run_to_their_caps():
    requests = tutorial_workload()
    assert [request.max_tokens for request in requests] == [6, 50, 300, 30, 180, 45]
    assert requests[0].prompt == "The capital of France is"
    assert all(request.ignore_eos and not request.chat for request in requests)


def test_the_same_file_read_as_a_file_stops_at_end_of_sequence():
    lines = list(read_json_lines((DATA / "workloads" / "tutorial.jsonl").read_bytes()))
    assert [line.prompt for line in require_all(lines, "x")] == [r.prompt for r in tutorial_workload()]
    assert not any(line.ignore_eos for line in require_all(lines, "x"))


def test_byte_order_mark_carriage_returns_and_blank_lines_are_fine():
    data = (
        b'\xef\xbb\xbf{"prompt": "a", "output_tokens": 1}\r\n\r\n   \n{"prompt": "b", "output_tokens": 2.0}'
    )
    assert list(read_json_lines(data)) == [
        PromptRequest(prompt="a", max_tokens=1),
        PromptRequest(prompt="b", max_tokens=2),
    ]


def test_a_prompt_may_hold_what_unicode_calls_a_line_separator():
    data = '{"prompt": "a\u2028b\u0085c", "output_tokens": 1}'.encode()
    assert [line.prompt for line in require_all(list(read_json_lines(data)), "x")] == ["a\u2028b\u0085c"]


@pytest.mark.parametrize("key", ["custom_id", "label"])
def test_a_line_may_name_its_request(key: str):
    data = f'{{"prompt": "a", "output_tokens": 1, "{key}": "weather"}}'.encode()
    assert require_all(list(read_json_lines(data)), "x")[0].label == "weather"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"prompt,tokens", "not JSON"),
        (b'{"prompt": "a"', "not JSON"),
        (b'["a", 3]', "not a JSON object"),
        (b'{"custom_id": "r1", "body": {"prompt": "a"}}', "`prompt` is missing"),
        (b'{"prompt": 5, "output_tokens": 1}', "`prompt` must be a string, not 5"),
        (b'{"prompt": "", "output_tokens": 1}', "`prompt` is empty"),
        (b'{"prompt": "\\ud800", "output_tokens": 1}', "half of a surrogate pair"),
        (b'{"prompt": "a"}', "`output_tokens` is missing"),
        (b'{"prompt": "a", "output_tokens": 0}', "must be from 1 to 1,000,000, not 0"),
        (b'{"prompt": "a", "output_tokens": -3}', "must be from 1"),
        (b'{"prompt": "a", "output_tokens": 99999999999999999999999}', "must be from 1"),
        (b'{"prompt": "a", "output_tokens": true}', "must be a whole number, not true"),
        (b'{"prompt": "a", "output_tokens": "6"}', 'must be a whole number, not "6"'),
        (b'{"prompt": "a", "output_tokens": 1.5}', "must be a whole number, not 1.5"),
        (b'{"prompt": "a", "output_tokens": 1, "custom_id": []}', "`custom_id` must be a string"),
        (b'{"prompt": "\xff", "output_tokens": 1}', "not UTF-8 text"),
        (b"\xff\xfe{\x00", "not UTF-8 text"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_reason(line: bytes, reason: str):
    found = reasons(b'{"prompt": "a", "output_tokens": 1}\n\n' + line)
    assert [number for number, _ in found] == [3]
    assert any(part in found[0][1] for part in reason.split("|"))
    assert "\n" not in found[0][1]


def test_a_line_without_output_tokens_takes_the_default():
    assert require_all(list(read_json_lines(b'{"prompt": "a"}', 7)), "x")[0].max_tokens == 7


def test_a_workload_that_must_be_whole_names_its_first_bad_line():
    lines = list(read_json_lines(b'{"prompt": "a", "output_tokens": 1}\nx\ny\n'))
    with pytest.raises(WorkloadError, match=r"^f\.jsonl, line 2: not JSON .*\(1 more bad lines\)$"):
        require_all(lines, "f.jsonl")


def test_an_empty_workload_is_refused():
    with pytest.raises(WorkloadError, match=r"f\.jsonl holds no requests"):
        require_all(list(read_json_lines(b"\n \n")), "f.jsonl")


def test_text_lines_are_prompts_as_they_stand():
    assert read_workload(b" two words \r\n\n\xff\n[x]", Asked(max_tokens=5)) == [
        PromptRequest(prompt=" two words ", max_tokens=5),
        BadLine(3, "not UTF-8 text (byte 1)"),
        PromptRequest(prompt="[x]", max_tokens=5),
    ]


def test_priority_is_a_whole_number_and_0_where_it_is_not_said() -> None:
    data = b'{"prompt": "a", "output_tokens": 1}\n{"prompt": "b", "output_tokens": 1, "priority": -3}\n'
    assert [r.priority for r in require_all(list(read_json_lines(data)), "file")] == [0, -3]


@pytest.mark.parametrize("value", ["1.5", '"high"', "true", "1001", "null"])
def test_a_priority_that_is_none_is_named(value: str) -> None:
    (bad,) = read_json_lines(b'{"prompt": "a", "output_tokens": 1, "priority": %s}' % value.encode())
    assert isinstance(bad, BadLine) and "`priority` must be a whole number" in bad.reason
