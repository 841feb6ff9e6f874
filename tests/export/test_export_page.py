"""The HTML page before a browser has it: needs nothing, forbids everything, and its data is the records'."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
from made_runs import TRACES, crowded_run, hostile_run, recorded

from cbtui.export.page import page
from cbtui.export.run import RecordedRun


class Tags(HTMLParser):
    """What an HTML reader finds: (tag, attributes), and the text of each style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open, []).append(data)


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">([^<]*)<', text)
    assert found
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def sequences(run: RecordedRun) -> dict[str, tuple[int, ...]]:
    return {
        story.request_id: (*story.request.prompt_token_ids, *story.output_token_ids) for story in run.stories
    }


@pytest.mark.parametrize("make", [hostile_run, crowded_run])
def test_it_loads_nothing_and_runs_only_its_own_script(make: Any) -> None:
    text = page(make())
    found = Tags(text)
    assert not [attrs for _, attrs in found.tags if {"src", "href", "srcset", "action"} & set(attrs)]
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on") or name == "style"]
    assert "url(" not in text and "@import" not in text
    policy = next(a["content"] for t, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for kind in ("script", "style"):
        [allowed] = re.findall(rf"{kind}-src 'sha256-([^']*)'", policy)
        digest = hashlib.sha256(found.texts[kind][-1].encode()).digest()
        assert base64.b64decode(allowed) == digest
    assert [t for t, _ in found.tags].count("script") == 2


def test_no_text_of_the_run_is_markup() -> None:
    text = page(hostile_run())
    title = re.search("<title>(.*)</title>", text)
    assert title is not None and "&lt;script&gt;" in title[1]
    assert text.count("pwned") == 1 and "{{data}}" not in text
    assert not any(character in text for character in "\x1b\x07\x9b\u202e\u2066\x00\ufffe")


@pytest.mark.parametrize("mode", [*TRACES, "crowded"])
def test_the_data_is_the_records(mode: str) -> None:
    run = crowded_run() if mode == "crowded" else recorded(mode)
    data = data_of(page(run))
    assert data["numbers"] == [step.step for step in run.steps]
    order = [story.request_id for story in run.stories]
    known = sequences(run)
    waiting: list[list[int]] = []
    for row, step in zip(data["steps"], run.steps, strict=True):
        assert (row[4], row[5], row[6], sum(row[7])) == (*step.shape, step.num_keys, step.tokens.total)
        waiting = row[13] or waiting
        if step.waiting:
            assert [order[place] for place, _, _ in waiting] == [one.request_id for one in step.waiting]
        for fields, segment in zip(row[15], step.segments, strict=True):
            assert order[fields[0]] == segment.request_id
            assert tuple(fields[3:9]) == (
                *(segment.row, segment.q_start, segment.q_len),
                *(segment.kv_start, segment.kv_len, segment.position),
            )
            begin, stop = segment.position, segment.position + segment.q_len
            said = fields[13] if len(fields) > 13 else None
            fed = said or known[segment.request_id][begin:stop]
            assert tuple(fed) == segment.token_ids


def test_every_step_is_told() -> None:
    data = data_of(page(crowded_run()))
    assert len(data["stories"]) == len(data["steps"]) and all(data["stories"])
    told = json.dumps(data["stories"])
    assert "gave its own back" in told and "is back, in slot" in told
