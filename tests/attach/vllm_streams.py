"""Streams recorded from real vLLM servers, read into records.

`vllm-tutorial.jsonl`: the tutorial's six requests, 3 slots. `vllm-pressed.jsonl`: seven requests on 10 KV
blocks and a budget of 48 tokens: prompts in pieces, common beginnings, a preemption, an abort.
`vllm-drafts.jsonl`: twelve requests, six at a time on 3 slots, each with 3 drafts looked up in its own text.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from engine.attach import vllm_lines
from engine.attach.vllm_fold import VllmFold
from engine.attach.vllm_lines import Line
from engine.stream.records import Record, StepRecord

DATA = Path(__file__).parents[1] / "data" / "attach"
NAMES = ("tutorial", "pressed", "drafts")


def path_of(name: str) -> Path:
    return DATA / f"vllm-{name}.jsonl"


@cache
def _tokens() -> dict[int, bytes]:
    table = json.loads((DATA / "vllm-tokens.json").read_text())
    return {int(number): text.encode("latin-1") for number, text in table.items()}


def token_bytes(token_id: int) -> bytes:
    return _tokens().get(token_id, b"")


def lines_of(name: str) -> list[Line]:
    return [vllm_lines.decode(line) for line in path_of(name).read_bytes().splitlines()]


def folded(lines: list[Line], fold: VllmFold | None = None) -> list[Record]:
    fold = fold or VllmFold(token_bytes)
    return [record for line in lines for record in fold.take(line)]


def steps_of(records: list[Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]
