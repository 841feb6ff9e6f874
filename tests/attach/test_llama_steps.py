"""Steps rebuilt from looks: the recorded series, and servers made up by the rules of llama.cpp's own."""

from __future__ import annotations

import json

from fake_server import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attach.llama_steps import Known, StepBuilder
from engine.attach.seen import SlotSeen, StepSeen

Look = tuple[float, tuple[SlotSeen, ...]]


def recorded_looks() -> list[Look]:
    """A real server's tutorial workload, looked at every 20 ms."""

    def slot(one: dict[str, int]) -> SlotSeen:
        return SlotSeen(
            slot=one["id"],
            n_ctx=1024,
            is_processing=bool(one["proc"]),
            task=one["task"],
            num_prompt=one["np"] - one["dec"],
            num_processed=one["npp"],
            num_cached=one["npc"],
            num_decoded=one["dec"],
            max_tokens=max(1, one["dec"] + one["rem"]),
        )

    series = json.loads((DATA / "llama_slots_series_20ms.json").read_text())
    return [(at_s, tuple(map(slot, slots))) for at_s, _, slots in series]


def steps_of(looks: list[Look]) -> list[StepSeen]:
    builder = StepBuilder()
    builder.begin(*looks[0])
    return [step for look in looks[1:] for step in builder.look(*look)]


def test_the_recorded_series_is_the_tutorials_own_story() -> None:
    steps = steps_of(recorded_looks())
    first, seventh = steps[0], steps[6]
    assert [(part.is_prefill, part.count) for part in first.parts] == [(True, 5), (True, 7), (True, 5)]
    assert [(one.num_output, one.reason) for one in steps[5].ended] == [(6, "length")], "A, in its sixth step"
    assert sum(part.count for part in seventh.parts) == 12, "D's ten-token prompt beside two decodes"
    assert [part.is_prefill for part in seventh.parts] == [False, False, True]
    assert [number for number, step in enumerate(steps, 1) if step.ended][:2] == [6, 36]
    assert 0 < sum(not step.is_seen for step in steps) < len(steps) / 3
    times = [edge for step in steps for edge in (step.start_s, step.end_s)]
    assert times == sorted(times)


def test_fewer_looks_give_the_same_steps_and_mark_more_of_them() -> None:
    looks = recorded_looks()
    whole, thinned = steps_of(looks), steps_of([*looks[:14], *looks[14::3]])
    assert [step.parts and [(p.seen.slot, p.position, p.count) for p in step.parts] for step in thinned] == [
        [(p.seen.slot, p.position, p.count) for p in step.parts] for step in whole[: len(thinned)]
    ]
    assert sum(not step.is_seen for step in thinned) > 2 * sum(not step.is_seen for step in whole)


def slot(**facts: int | bool) -> SlotSeen:
    known: dict[str, int | bool] = {
        "slot": 0,
        "n_ctx": 64,
        "is_processing": True,
        "task": 7,
        "max_tokens": 99,
    }
    return SlotSeen(**{**known, **facts})  # type: ignore[arg-type]


def test_after_a_context_shift_a_step_stands_where_the_server_has_it() -> None:
    def at(decoded: int, shifted: int) -> Look:
        facts = {"num_prompt": 10, "num_processed": 10, "num_decoded": decoded, "num_shifted": shifted}
        return decoded / 10, (slot(**facts),)

    # The token counted a moment before it is in the length makes a shift look one greater.
    steps = steps_of([at(52, 0), at(53, 0), at(54, 30), at(55, 31), at(56, 30)])
    assert [part.position for step in steps for part in step.parts] == [61, 32, 33, 34]


def test_another_completion_of_a_prompt_was_not_fed_it_again() -> None:
    fed = {"num_prompt": 20, "num_processed": 20, "num_decoded": 1}
    looks = [
        (0.0, (slot(is_processing=False, task=-1), slot(slot=1, is_processing=False, task=-1))),
        (0.1, (slot(num_prompt=20), slot(slot=1, task=8))),
        (0.2, (slot(**fed), slot(slot=1, task=8, **fed))),
    ]
    first = steps_of(looks)[-1]
    assert [(part.position, part.count) for part in first.parts] == [(0, 20), (19, 1)]


def test_a_pooling_task_makes_a_step_and_no_output_token() -> None:
    over = slot(is_processing=False, num_prompt=20, was_cut=True)
    idle = slot(is_processing=False, task=6)
    (step,) = steps_of([(0.0, (idle,)), (0.1, (slot(num_prompt=20, max_tokens=44),)), (0.2, (over,))])
    assert [(part.is_prefill, part.count, part.output) for part in step.parts] == [(True, 20, None)]
    assert [(one.num_output, one.is_sure) for one in step.ended] == [(0, False)]


def test_a_request_whose_client_went_was_aborted() -> None:
    fed = {"num_prompt": 20, "num_processed": 20}
    looks = [
        (0.0, (slot(num_decoded=4, **fed), slot(slot=1, task=8, num_decoded=4, **fed))),
        (0.1, (slot(is_processing=False, was_cut=True), slot(slot=1, task=8, num_decoded=7, **fed))),
    ]
    ends = [one for step in steps_of(looks) for one in step.ended]
    assert [(one.num_output, one.reason, one.is_sure) for one in ends] == [(7, "abort", True)]


class Server:
    """Slots by llama.cpp's rules: every generating slot one token a step, prompts whole beside them."""

    def __init__(self, slots: int, requests: list[tuple[int, int]]) -> None:
        self.slots: list[dict[str, int]] = [
            {"task": -1, "prompt": 0, "made": 0, "most": 1} for _ in range(slots)
        ]
        self.busy = [False] * slots
        self.queue = list(enumerate(requests))
        self.steps: list[list[tuple[int, int, int, int]]] = []

    def fill(self) -> None:
        for number, is_busy in enumerate(self.busy):
            if not is_busy and self.queue:
                task, (prompt, most) = self.queue.pop(0)
                self.slots[number] = {"task": task, "prompt": prompt, "made": 0, "most": most}
                self.busy[number] = True

    def step(self) -> None:
        made = []
        for number, slot in enumerate(self.slots):
            if not self.busy[number]:
                continue
            position = 0 if not slot["made"] else slot["prompt"] + slot["made"] - 1
            count = slot["prompt"] if not slot["made"] else 1
            made.append((number, slot["task"], position, count))
            slot["made"] += 1
            if slot["made"] == slot["most"]:
                self.busy[number] = False
        self.steps.append(made)

    def look(self) -> tuple[SlotSeen, ...]:
        return tuple(
            SlotSeen(
                slot=number,
                n_ctx=100,
                is_processing=self.busy[number],
                task=slot["task"],
                num_prompt=slot["prompt"],
                num_processed=slot["prompt"] if slot["made"] else 0,
                num_decoded=slot["made"] if self.busy[number] else 0,
                max_tokens=slot["most"],
            )
            for number, slot in enumerate(self.slots)
        )


REQUESTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=8)


@given(st.integers(1, 4), REQUESTS)
def test_a_look_after_every_step_gives_exactly_the_servers_steps(
    slots: int, requests: list[tuple[int, int]]
) -> None:
    server = Server(slots, requests)
    looks: list[Look] = [(0.0, server.look())]
    while server.queue or any(server.busy):
        server.fill()
        looks.append((len(looks) * 0.5, server.look()))
        server.step()
        looks.append((len(looks) * 0.5, server.look()))
    steps = steps_of(looks)
    assert [
        [(p.seen.slot, p.seen.task, p.position, p.count) for p in one.parts] for one in steps
    ] == server.steps
    assert all(step.is_seen for step in steps)
    ended = {one.seen.task: (one.num_output, one.reason) for step in steps for one in step.ended}
    assert ended == {task: (most, "length") for task, (_, most) in enumerate(requests)}


@settings(max_examples=200)
@given(st.integers(1, 4), REQUESTS, st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_seldom_looks_never_tell_what_cannot_have_been(
    slots: int, requests: list[tuple[int, int]], gaps: list[int]
) -> None:
    server = Server(slots, requests)
    looks: list[Look] = [(0.0, server.look())]
    now, turn = 0.0, 0
    while server.queue or any(server.busy):
        for _ in range(gaps[turn % len(gaps)]):
            server.fill()
            server.step()
            now += 1.0
        turn += 1
        looks.append((now, server.look()))
    steps = steps_of(looks)
    assert len(steps) <= len(server.steps)
    ends: dict[int, int] = {}
    outputs: dict[int, int] = {}
    for step in steps:
        assert len({part.seen.slot for part in step.parts}) == len(step.parts), "one request a slot"
        assert step.start_s <= step.end_s
        for part in step.parts:
            task = part.seen.task
            assert part.position == ends.get(task, 0) and part.count >= 1
            assert part.is_prefill == (task not in outputs)
            ends[task] = part.position + part.count
            outputs[task] = outputs.get(task, 0) + 1
            assert part.output == outputs[task] <= requests[task][1]
        for one in step.ended:
            assert one.num_output == outputs.get(one.seen.task, 0)


def test_a_request_that_came_and_went_is_told_if_somebody_knows_it_and_counted_if_nobody_does() -> None:
    idle = SlotSeen(slot=0, n_ctx=100, task=4)
    after = SlotSeen(slot=0, n_ctx=100, task=7, num_prompt=8, max_tokens=5)
    for known in (Known(5, 3, "stop"), None):
        builder = StepBuilder()
        builder.begin(0.0, (idle,))
        steps = builder.look(1.0, (after,), lambda seen, known=known: known)
        fed = [(part.is_prefill, part.position, part.count) for step in steps for part in step.parts]
        assert fed == ([(True, 0, 5), (False, 5, 1), (False, 6, 1)] if known else [])
        assert [one.num_output for step in steps for one in step.ended] == ([3] if known else [])
        assert builder.num_unseen == (0 if known else 1)


def test_a_request_refused_right_behind_one_that_ended_makes_no_step_of_its_own() -> None:
    """Both between two looks, in one slot: the second came and went without a token."""
    busy = SlotSeen(
        slot=0, n_ctx=100, is_processing=True, task=4, num_prompt=5, num_processed=5, num_decoded=2
    )
    after = SlotSeen(slot=0, n_ctx=100, task=7)
    builder = StepBuilder()
    builder.begin(0.0, (busy,))
    known = {4: Known(5, 3, "stop"), 7: Known(9, 0, "error")}
    steps = builder.look(1.0, (after,), lambda seen: known[seen.task])
    assert [part.output for step in steps for part in step.parts] == [3]
    assert sorted((one.num_output, one.reason) for step in steps for one in step.ended) == [
        (0, "error"),
        (3, "stop"),
    ]
