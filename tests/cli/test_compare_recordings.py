"""`cbtui compare` on recordings of servers: what is not told is left out, or file and reason are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine.attach.openai import Token
from engine.attach.prompts import EncodedText, Own
from engine.attach.seen import Ended, Part, SlotSeen, StepSeen
from engine.attach.seen_records import SeenRecords
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.runner import ModelInfo
from engine.stream.records import Provenance, Record
from engine.stream.trace_files import TraceRecorder, header_of

Cbtui = Callable[..., Any]
DATA = Path(__file__).parent.parent / "data" / "attach"
SOURCE = Provenance(engine="a server", absent=(("budget", "not told"),))


def step(number: int, seen: SlotSeen, *, is_last: bool = False) -> StepSeen:
    fed = (0, 2) if not number else (1 + number, 1)
    part = Part(seen, not number, *fed, number + 1, not number)
    ended = [Ended(seen, number + 1, "length", True)] if is_last else []
    return StepSeen(float(number), number + 1.0, [part], ended)


def run_of(*told: Token | None) -> list[Record]:
    """One request of which the server told these output tokens, or that it made one."""
    writer = SeenRecords(count(1))
    seen = SlotSeen(slot=0, n_ctx=9, is_processing=True, num_prompt=2, max_tokens=len(told), seed=7)
    if None not in told:
        own = Own("own-0", 0, PromptRequest(prompt="a b", max_tokens=len(told)), 7, 0.0)
        own.prompt = EncodedText(((5, b"a"), (6, b" b")))
        own.tokens = [token for token in told if token]
        writer.sent([own])
    steps = [step(number, seen, is_last=number == len(told) - 1) for number in range(len(told))]
    return [record for one in steps for record in writer.records(one, 3)]


def recorded(path: Path, records: list[Record], dtype: str = "Q4_1") -> str:
    recorder = TraceRecorder(path)
    model = ModelInfo(name="m", source="m", device="", dtype=dtype)
    recorder.begin(header_of(model, EngineConfig(), SOURCE))
    for record in records:
        recorder.write(record)
    recorder.close()
    return str(path)


KNOWN = (Token(1, b"x"), Token(2, b"y"))
BY_TEXT = (Token(None, b"x"), Token(None, b"y"))


def test_what_a_server_tells_is_compared_and_its_budget_is_not_made_up(cbtui: Cbtui, tmp_path: Path) -> None:
    paths = [recorded(tmp_path / name, run_of(*KNOWN)) for name in ("a.trace", "b.trace")]
    ended = cbtui("compare", *paths, "--json")
    told = json.loads(ended.out)
    assert told["identical"] and told["max_num_batched_tokens"] is None
    assert list(told["modes"]) == ["a.trace", "b.trace"], "by file: both are continuous"
    report = cbtui("compare", *paths).out
    assert "each through its server's own code" in " ".join(report.split())


def test_in_a_precision_that_may_be_any_other_tokens_are_no_fault(cbtui: Cbtui, tmp_path: Path) -> None:
    for dtype in ("Q4_1", ""):
        paths = [
            recorded(tmp_path / "a.trace", run_of(*KNOWN), dtype),
            recorded(tmp_path / "b.trace", run_of(KNOWN[0], Token(9, b"z")), dtype),
        ]
        ended = cbtui("compare", *paths)
        words = " ".join(ended.out.split())
        assert ended.code == 0 and "nothing is claimed here." in words


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ((None, None), "a server tells no output tokens of 1 of its 1 request"),
        (BY_TEXT, "a server tells only the texts, not the ids, of the output tokens of 1 of its 1 request"),
    ],
)
def test_outputs_that_are_not_told_are_refused_with_file_and_reason(
    cbtui: Cbtui, tmp_path: Path, told: tuple[Token | None, ...], why: str
) -> None:
    paths = [recorded(tmp_path / "a.trace", run_of(*KNOWN)), recorded(tmp_path / "b.trace", run_of(*told))]
    ended = cbtui("compare", *paths)
    assert ended.code == 2 and f"{paths[1]} cannot be compared: {why}" in ended.err
    assert cbtui("compare", paths[1]).code == 0, "alone it says what it cost"


def test_a_recording_that_names_nobody_is_refused_by_name(cbtui: Cbtui, tmp_path: Path) -> None:
    unnamed = SeenRecords(count()).records(StepSeen(0.0, 1.0), 3)
    paths = [recorded(tmp_path / "a.trace", run_of(*KNOWN)), recorded(tmp_path / "b.trace", unnamed)]
    ended = cbtui("compare", *paths)
    assert ended.code == 2 and "b.trace cannot be compared" in ended.err


def test_recordings_of_vllm_are_compared_by_the_tokens_it_tells(cbtui: Cbtui) -> None:
    path = str(DATA / "vllm-tutorial.jsonl")
    assert json.loads(cbtui("compare", path, path, "--json").out)["identical"]
    other = cbtui("compare", path, str(DATA / "vllm-pressed.jsonl"))
    assert "vllm-pressed.jsonl and vllm-tutorial.jsonl did not run" in other.err
