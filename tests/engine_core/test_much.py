"""Much at once, and for long: every request ends exactly once, memory stays flat, threads lose nothing."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter

import pytest
from loop_desk import Desk

from engine.config import EngineConfig
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Cancel, Command, Configure, PromptRequest, SetMode, Step, Submit
from engine.live.loop import EngineLoop
from engine.live.state import EngineState
from engine.scheduling.modes import MODES
from engine.scheduling.policies import POLICIES
from engine.stream.records import Events, QuietRecord, Record


class Count:
    """What ended how often, and what came; kept as the records come, for a history drops old ones."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._read = 0
        self.came: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def look(self) -> None:
        first, records = self._desk.history.since(self._read)
        assert first == self._read, "nothing was dropped before it was read"
        self._read += len(records)
        for record in records:
            self.came |= {request.request_id for request in record.events.submitted}
            for finish in record.events.finished:
                self.ended[finish.request_id] += 1
                self.reasons[finish.reason] += 1


def random_command(draw: random.Random, count: Count) -> Command:
    """A cancel of anybody, or another mode, number of slots, budget or policy."""
    match draw.randrange(8):
        case 0 | 1 | 2 | 3:
            return Cancel(draw.choice(sorted(count.came - set(count.ended)) or ["r0"]))
        case 4:
            return SetMode(draw.choice(list(MODES)))
        case 5:
            return Configure(max_num_seqs=draw.randint(1, 32), preempt_surplus=draw.random() < 0.3)
        case 6:
            return Configure(policy=draw.choice(list(POLICIES)), prefix_caching=draw.random() < 0.5)
    return Configure(max_num_batched_tokens=draw.randint(32, 400))


def request(draw: random.Random) -> PromptRequest:
    """Short mostly; one in a hundred can never run."""
    size = draw.choice([1, 3, 9, 20, 5000 if draw.random() < 0.05 else 2])
    return PromptRequest(prompt="x" * size, max_tokens=draw.randint(1, 6), priority=draw.randint(-3, 3))


def life(requests: int, *, seed: int) -> Count:
    """Requests in groups, with commands between the steps, until the engine is empty."""
    draw = random.Random(seed)
    config = EngineConfig(max_num_seqs=8, max_num_batched_tokens=256, num_blocks=64, max_model_len=512)
    desk = Desk(config=config)
    count = Count(desk)
    asked = 0
    while asked < requests:
        group = min(draw.choice([1, 1, 2, 5, 40]), requests - asked)
        asked += group
        desk.say(Submit(tuple(request(draw) for _ in range(group))), turns=1)
        for _ in range(draw.randrange(3)):
            desk.say(random_command(draw, count), turns=1)
        desk.turn(draw.randrange(12))
        count.look()
    for _ in range(100_000):
        state = desk.turn()
        count.look()
        if state.status == "idle" and not state.waiting_count and not state.arriving_count:
            break
    assert desk.mailbox.latest().status == "idle"
    assert desk.loop.engine is not None and desk.loop.engine.scheduler.kv.pool.num_free == config.num_blocks
    return count


@pytest.mark.parametrize("requests", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_request_ends_exactly_once_whatever_changes_meanwhile(requests: int) -> None:
    count = life(requests, seed=requests)
    assert len(count.came) == requests
    assert set(count.ended) == count.came and set(count.ended.values()) == {1}
    assert {"length", "abort", "ignored"} <= set(count.reasons)


@pytest.mark.long
def test_eight_hours_of_work_keep_no_more_objects_than_two() -> None:
    """At eight steps a second of the loop's own clock: 230,000 steps. Old records are dropped."""
    desk = Desk(config=EngineConfig(max_num_seqs=4), speed=8.0)
    desk.history.limit = 500
    desk.history._records = type(desk.history._records)(maxlen=500)
    draw = random.Random(0)
    sizes = []
    for hour in range(8):
        until = (hour + 1) * 3600.0
        while desk.time.now < until:
            if not desk.mailbox.latest().waiting_count:
                desk.say(Submit(tuple(request(draw) for _ in range(4))), turns=1)
            desk.turn(8)
        gc.collect()
        sizes.append(len(gc.get_objects()))
    assert desk.mailbox.latest().step > 200_000
    assert max(sizes[2:]) < 1.05 * sizes[1], sizes


def test_the_queue_loses_nothing_and_keeps_each_threads_order() -> None:
    queue, threads, each = CommandQueue(), 6, 2_000

    def put(thread: int) -> None:
        for number in range(each):
            queue.put(Step(thread * each + number))

    putting = [threading.Thread(target=put, args=(thread,)) for thread in range(threads)]
    for thread in putting:
        thread.start()
    taken: list[int] = []
    while len(taken) < threads * each:
        assert queue.wait(20), f"{len(taken)} came"
        taken += [command.count for command in queue.take_all() if isinstance(command, Step)]
    for thread in putting:
        thread.join()
    assert sorted(taken) == list(range(threads * each))
    for thread in range(threads):
        mine = [number for number in taken if number // each == thread]
        assert mine == sorted(mine)


def quiet(number: int) -> Record:
    return QuietRecord(number, float(number), Events())


def test_readers_of_a_history_see_every_record_once_and_in_order_or_are_told_what_is_gone() -> None:
    history, total = History(limit=300), 20_000
    faults: list[str] = []

    def read() -> None:
        at = 0
        while at < total:
            first, records = history.since(at)
            if first < at:
                faults.append(f"asked from {at}, got from {first}")
            if [record.step for record in records] != list(range(first, first + len(records))):
                faults.append(f"gap after {first}")
            at = first + len(records)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(total):
        history.append(quiet(number))
    for reader in readers:
        reader.join(60)
    assert not faults and not any(reader.is_alive() for reader in readers)


def test_a_mailbox_never_shows_an_older_state_after_a_newer_one() -> None:
    mailbox, total = Mailbox(), 20_000
    faults: list[int] = []

    def read() -> None:
        seen = -1
        while seen < total - 1:
            state = mailbox.latest()
            # What is published together is seen together.
            if state.version < seen or (state.version and state.step != state.version):
                faults.append(state.version)
            seen = max(seen, state.version)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(total):
        mailbox.publish(EngineState(version=number, step=number))
    for reader in readers:
        reader.join(60)
    assert not faults and not any(reader.is_alive() for reader in readers)


def test_a_loop_in_its_thread_takes_commands_from_many_threads_at_once() -> None:
    from engine.fake import FakeRunner

    commands, mailbox, history = CommandQueue(), Mailbox(), History(limit=100_000)
    loop = EngineLoop(
        EngineConfig(max_num_seqs=16), FakeRunner(), commands=commands, mailbox=mailbox, history=history
    )
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop.is_set,))
    thread.start()

    def ask(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(60):
            commands.put(Submit((PromptRequest(prompt="x" * draw.randint(1, 9), max_tokens=3),)))
            if draw.random() < 0.3:
                commands.put(Cancel(f"r{draw.randrange(200)}"))
            if draw.random() < 0.1:
                commands.put(SetMode(draw.choice(list(MODES))))

    asking = [threading.Thread(target=ask, args=(seed,)) for seed in range(5)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    waited, quiet_looks = threading.Event(), 0
    for _ in range(3_000):
        state = mailbox.latest()
        is_done = state.status == "idle" and not (state.arriving_count or state.waiting_count or state.slots)
        quiet_looks = quiet_looks + 1 if is_done and not commands.wait(0) else 0
        if quiet_looks == 10:
            break
        waited.wait(0.01)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    _, records = history.since(0)
    came = [request.request_id for record in records for request in record.events.submitted]
    ended = [finish.request_id for record in records for finish in record.events.finished]
    assert len(came) == len(set(came)) > 200
    assert sorted(came) == sorted(ended)
