"""Prompts sent from here: few are under way at a server at a time, and each is in sight till it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest
from fake_server import DATA, fake_server
from following import following
from scripted import ScriptedSource, Watcher
from test_attach_screen import LLAMA, attached, seen
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.orders import num_unfinished
from engine.attach.asking import queue_of
from engine.attach.prompts import Own, at_once_for
from engine.attach.source import HELD_HERE, Queue
from engine.live.commands import Pause, PromptRequest, Submit
from engine.live.state import Arriving
from engine.stream.records import Events, QuietRecord, RequestRecord
from tests.app.replay import Feeder, drive


def own(index: int, *, is_held: bool) -> Own:
    one = Own(f"own-{index}", index, PromptRequest(prompt=f"p{index}"), index, 0.0)
    one.is_held = is_held
    return one


@pytest.mark.parametrize(("slots", "most"), [(1, 4), (2, 4), (3, 6), (16, 32)])
def test_so_many_are_under_way_as_keep_every_slot_busy(slots: int, most: int) -> None:
    assert at_once_for(slots) == most


def test_all_are_counted_and_the_first_are_named() -> None:
    owns = [own(n, is_held=n >= 6) for n in range(200)]
    queue = queue_of(owns, lambda _: "encoding")
    assert (len(queue.arriving), queue.arriving_count, queue.num_held) == (64, 200, 194)
    assert {one.reason for one in queue.arriving} == {"encoding", HELD_HERE}


def test_a_server_is_sent_no_more_than_it_can_use_and_the_others_follow() -> None:
    lock, gate = threading.Lock(), threading.Event()
    most = now = 0

    def answer(_: bytes) -> list[bytes]:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(10)
        with lock:
            now -= 1
        return [b'data: {"choices": [{"text": "x", "finish_reason": "length"}]}\n\n', b"data: [DONE]\n\n"]

    with fake_server() as server:
        server.answers["/slots"] = (DATA / "llama_slots_idle.json").read_bytes()
        server.answers["/props"] = (DATA / "llama_props.json").read_bytes()
        server.answers["/v1/completions"] = answer
        with following(server.url) as one:
            limit = at_once_for(one.state.config.max_num_seqs)
            one.commands.put(Submit(tuple(PromptRequest(prompt=f"p{n}", max_tokens=1) for n in range(70))))
            one.wait(lambda: now == limit)
            one.wait(lambda: one.state.num_held_here == 70 - limit)
            assert (one.state.arriving_count, num_unfinished(one.state)) == (70, 70)
            gate.set()
            one.wait(lambda: one.num_finished == 70)
            assert one.state.num_held_here == one.state.arriving_count == 0
    assert most == limit


def test_what_is_held_back_is_named_and_counted_on_the_screen() -> None:
    feeder = Feeder()
    owns = [own(n, is_held=n >= 6) for n in range(200)]
    queue = queue_of(owns, lambda _: "encoding")
    state = attached(
        LLAMA, arriving=queue.arriving, arriving_count=queue.arriving_count, num_held_here=queue.num_held
    )
    feeder.ready(**state)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert "of 200 · 194 held back here" in seen(app)
        await pilot.press("escape", "q")
        assert "200" in seen(app), "quitting counts all of them"

    drive(feeder, script)


def arrivals(indices: Iterator[int]) -> QuietRecord:
    request = RequestRecord(f"own-{next(indices)}", 0, (1,), "hello", 8, 0.0)
    return QuietRecord(0, 0.0, Events(submitted=(request,)))


def test_while_steps_are_held_back_prompts_from_here_stay_in_the_queue() -> None:
    source = ScriptedSource()
    watcher = Watcher(source)
    watcher.turn(2)
    watcher.commands.put(Pause())
    waiting = Arriving("own-7", 7, "hi", 8, HELD_HERE)
    source.queued = Queue(arriving=(waiting,), arriving_count=1, num_held=1)
    source.script.append([arrivals(count())])
    watcher.turn(2)
    assert watcher.state.status == "paused" and watcher.state.arriving_count == 2
    assert {one.request_id for one in watcher.state.arriving} == {"own-0", "own-7"}
    assert num_unfinished(watcher.state) == 2
