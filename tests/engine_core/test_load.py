"""Generated load: the same for the same seed, at the rate asked for, and only while the engine runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice, pairwise
from statistics import fmean

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close, Pause, Resume
from engine.live.load import LoadError, LoadSpec, StartLoad, StopLoad, arrivals, passage
from engine.live.load_feed import LoadFeed
from engine.live.loop import EngineLoop

SPEC = LoadSpec(rate_per_s=4.0, prompt_tokens=(8, 64), output_tokens=(16, 32), seed=7)


def fed(spec: LoadSpec = SPEC) -> LoadFeed:
    feed = LoadFeed(spec, 0.0)
    feed.take_text(list(passage().encode()), fake_token_bytes)
    return feed


def test_arrivals_depend_on_the_seed_alone() -> None:
    first, again = (list(islice(arrivals(SPEC), 50)) for _ in range(2))
    assert first == again
    assert first != list(islice(arrivals(LoadSpec(rate_per_s=4.0, seed=8)), 50))


def test_gaps_are_exponential_and_lengths_within_their_ranges() -> None:
    drawn = list(islice(arrivals(SPEC), 20_000))
    gaps = [b.time_s - a.time_s for a, b in pairwise(drawn)]
    assert fmean(gaps) == pytest.approx(0.25, rel=0.03)
    assert fmean(gap * gap for gap in gaps) == pytest.approx(2 * 0.25**2, rel=0.08)
    assert {d.prompt_tokens for d in drawn} == set(range(8, 65))
    assert {d.output_tokens for d in drawn} == set(range(16, 33))


def test_time_stands_still_while_the_engine_does() -> None:
    feed = fed()
    first = next(arrivals(SPEC)).time_s
    assert feed.due(100.0, is_running=False) == []
    assert feed.due(100.0 + first * 0.9, is_running=True) == []
    assert len(feed.due(100.0 + first * 1.0001, is_running=True)) == 1
    assert feed.now.num_arrived == 1


def test_nothing_arrives_before_the_text_is_known() -> None:
    feed = LoadFeed(SPEC, 0.0)
    assert feed.due(100.0, is_running=True) == []


def test_prompts_have_their_length_and_begin_with_a_word() -> None:
    feed = fed()
    for drawn in islice(arrivals(SPEC), 100):
        prompt = feed.prompt(drawn)
        assert len(prompt) == drawn.prompt_tokens
        assert prompt[0] == ord(" ") and bytes(prompt).decode()[1:3].strip()


def test_a_longer_prompt_than_the_text_begins_it_again() -> None:
    spec = LoadSpec(prompt_tokens=(5000, 5000))
    assert len(fed(spec).prompt(next(arrivals(spec)))) == 5000


def test_requests_enter_the_engine_with_their_text() -> None:
    runner = FakeRunner()
    engine = Engine(EngineConfig(), runner, runner.info, token_bytes=fake_token_bytes)
    fed().enter(engine, 10.0, is_running=True)
    record = engine.take_quiet_record()
    assert record is not None and len(record.events.submitted) > 20
    request = record.events.submitted[0]
    assert request.label == "load" and request.ignore_eos and request.prompt_text in passage() * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_per_s": 0.0},
        {"rate_per_s": float("nan")},
        {"prompt_tokens": (9, 8)},
        {"output_tokens": (0, 8)},
        {"seed": -1},
    ],
)
def test_what_cannot_be_generated_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(LoadError):
        LoadSpec(**wrong)  # type: ignore[arg-type]


def seen(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_past_saturation_the_queue_grows_until_the_load_is_stopped() -> None:
    loop = EngineLoop(
        EngineConfig(max_num_seqs=1),
        FakeRunner(),
        commands=CommandQueue(),
        mailbox=Mailbox(),
        history=History(),
        token_bytes=lambda info: fake_token_bytes,
        speed=20.0,
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    seen(lambda: loop.mailbox.latest().status == "idle")
    loop.commands.put(StartLoad(LoadSpec(rate_per_s=200.0)))
    seen(lambda: loop.mailbox.latest().waiting_count > 50)
    load = loop.mailbox.latest().load
    assert load is not None and load.num_arrived > 50
    loop.commands.put(Pause())
    seen(lambda: loop.mailbox.latest().paused)
    arrived = loop.mailbox.latest().load
    time.sleep(0.1)
    assert loop.mailbox.latest().load == arrived
    loop.commands.put(StopLoad())
    loop.commands.put(Resume())
    seen(lambda: loop.mailbox.latest().load is None and not loop.mailbox.latest().paused)
    loop.commands.put(Close())
    thread.join(5)


def test_a_load_with_prompts_that_can_never_fit_is_refused() -> None:
    loop = EngineLoop(
        EngineConfig(max_model_len=32),
        FakeRunner(),
        commands=CommandQueue(),
        mailbox=Mailbox(),
        history=History(),
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    seen(lambda: loop.mailbox.latest().status == "idle")
    loop.commands.put(StartLoad(LoadSpec(prompt_tokens=(8, 64))))
    seen(lambda: loop.mailbox.latest().rejection is not None)
    loop.commands.put(Close())
    thread.join(5)
