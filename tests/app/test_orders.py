"""What keys mean in a state: pure."""

from __future__ import annotations

import pytest

from cbtui import orders
from engine.config import SLOT_LIMIT, EngineConfig
from engine.live.commands import Configure, Pause, Resume, SetMode, SetSpeed
from engine.live.state import Arriving, EngineState
from engine.stream.records import SlotRecord, WaitingRecord


def slot(number: int, *, held: bool = False) -> SlotRecord:
    return SlotRecord(number, f"r{number}", held, 5, 4, 1, 9)


def test_pause_toggles() -> None:
    assert orders.pause_order(EngineState()) == Pause()
    assert orders.pause_order(EngineState(paused=True)) == Resume()


@pytest.mark.parametrize(
    ("mode", "pending", "wanted"),
    [
        ("continuous", None, "static"),
        ("continuous-padded", None, "static"),
        ("static", None, "continuous"),
        ("continuous", "static", "continuous"),
    ],
)
def test_the_mode_key_goes_between_static_and_continuous(mode: str, pending: str | None, wanted: str) -> None:
    assert orders.mode_order(EngineState(mode=mode, pending_mode=pending)) == SetMode(wanted)


def test_slots_stay_between_one_and_what_engine_and_budget_hold() -> None:
    def order(slots: int, by: int, budget: int = 2048) -> object:
        config = EngineConfig(max_num_seqs=slots, max_num_batched_tokens=budget)
        return orders.slots_order(EngineState(config=config), by)

    assert order(3, 1) == Configure(max_num_seqs=4)
    for slots, by, budget in ((1, -1, 2048), (SLOT_LIMIT, 1, 2048), (4, 1, 4)):
        with pytest.raises(orders.NoOrder):
            order(slots, by, budget)


def test_speed_halves_and_doubles_between_its_ends() -> None:
    def order(speed: float | None, by: int) -> object:
        return orders.speed_order(EngineState(speed=speed), by)

    assert order(8, 1) == SetSpeed(16) and order(8, -1) == SetSpeed(4)
    assert order(128, 1) == SetSpeed(None) and order(None, -1) == SetSpeed(128)
    assert order(100, 1) == SetSpeed(None)
    for speed, by in ((None, 1), (0.5, -1)):
        with pytest.raises(orders.NoOrder):
            order(speed, by)


def test_held_slots_are_neither_running_nor_unfinished() -> None:
    state = EngineState(
        slots=(slot(0), slot(1, held=True)),
        waiting_count=1,
        waiting=(WaitingRecord("r2", "wave"),),
        arriving_count=1,
        arriving=(Arriving("r3", 3, "Hi", 9, "encoding"),),
    )
    assert orders.is_running(state, "r0") and not orders.is_running(state, "r1")
    assert orders.is_waiting(state, "r2") and orders.is_waiting(state, "r3")
    assert not orders.is_waiting(state, "r0")
    assert orders.num_unfinished(state) == 3
