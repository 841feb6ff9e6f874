"""Prompts that are made up from a length, and caps that are another text's length."""

from __future__ import annotations

from pathlib import Path

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.commands import MadeUp, PromptRequest
from engine.live.feed import Entry, Feed, Timetable
from engine.live.prompting import made_up
from engine.session import drain, encode, submit
from engine.stream.ledger import Ledger
from engine.workload import Asked, read_workload

DATA = Path(__file__).parents[1] / "data" / "workloads"
PASSAGE = list(range(300))


def test_a_made_up_prompt_has_its_length_and_follows_from_its_key() -> None:
    spec = MadeUp(100, "0/1")
    assert len(made_up(spec, PASSAGE)) == 100
    assert made_up(spec, PASSAGE) == made_up(spec, PASSAGE)
    assert made_up(spec, PASSAGE) != made_up(MadeUp(100, "0/2"), PASSAGE)
    assert made_up(spec, PASSAGE) != made_up(MadeUp(100, "1/1"), PASSAGE)


def test_equal_hash_ids_are_equal_prefixes_and_only_they() -> None:
    def ids(key: str, *hash_ids: int) -> list[int]:
        return made_up(MadeUp(1100, key, "0", hash_ids), PASSAGE)

    one, other = ids("0/1", 7, 8, 9), ids("0/2", 7, 8, 10)
    assert one[:1024] == other[:1024] and one[1024:] != other[1024:]
    assert ids("0/1", 7, 8)[:1024] == one[:1024] != ids("0/1", 7, 9)[:1024]
    assert len(ids("0/1", *range(9))) == 1100


def test_traces_run_to_their_lengths_on_an_engine() -> None:
    runner = FakeRunner()
    runner.start()
    config = EngineConfig(max_num_seqs=4, prefix_caching=True)
    engine = Engine(config, runner, runner.info, token_bytes=fake_token_bytes)
    requests = read_workload((DATA / "mooncake.jsonl").read_bytes(), Asked(), limit=3)
    assert all(isinstance(request, PromptRequest) for request in requests)
    for request, prompt in zip(requests, encode(runner, requests), strict=True):  # type: ignore[arg-type]
        submit(engine, request, prompt)  # type: ignore[arg-type]
    ledger = Ledger()
    for record in drain(engine):
        ledger.apply(record)
    stories = list(ledger.stories.values())
    assert [len(story.request.prompt_token_ids) for story in stories] == [608, 1120, 520]
    assert [len(story.output_token_ids) for story in stories] == [8, 32, 64]
    assert stories[0].request.prompt_text[:50] == stories[1].request.prompt_text[:50] != ""


def test_a_reply_caps_the_output_by_its_tokens() -> None:
    runner = FakeRunner()
    runner.start()
    engine = Engine(EngineConfig(), runner, runner.info)
    requests = [
        PromptRequest(prompt="a", reply="four", max_tokens=9),
        PromptRequest(prompt="b", max_tokens=9),
    ]
    for request, prompt in zip(requests, encode(runner, requests), strict=True):
        submit(engine, request, prompt)
    assert [r.max_tokens for r in next(drain(engine)).events.submitted] == [4, 9]


def test_a_timetable_starts_with_its_first_item_and_keeps_the_gaps() -> None:
    table = Timetable([(5.0, "b"), (3.0, "a"), (9.0, "c")], factor=2.0)
    assert (table.due(0.0), table.next_s) == (["a"], 1.0)
    assert table.due(2.9) == ["b"] and table.due(3.0) == ["c"] and not table
    assert Timetable([(5.0, "b"), (3.0, "a")], factor=None).due(0.0) == ["b", "a"]


def test_an_empty_engine_waits_for_the_next_arrival() -> None:
    runner = FakeRunner()
    runner.start()
    engine = Engine(EngineConfig(), runner, runner.info)
    requests = [PromptRequest(prompt="a", max_tokens=1, arrives_s=at) for at in (0.0, 10.0)]
    entries = [Entry(n, *pair) for n, pair in enumerate(zip(requests, encode(runner, requests), strict=True))]
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    feed = Feed(entries, 10.0, submit, on_refused=lambda *_: None, now_s=lambda: clock[0], sleep=sleep)
    records = list(drain(engine, feed=feed))
    assert sum(len(record.events.finished) for record in records) == 2
    assert slept == [1.0]
