"""Whatever stands in front, the engine behind it can be paused and stepped."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Input

import cbtui
from cbtui.app import CbtuiApp
from cbtui.screens.confirm import AskScreen
from cbtui.screens.in_front import InFront
from engine.live.commands import Command, Pause, Resume, Step
from tests.app.replay import Feeder, drive, fake_records

#: Keys that bring something in front, a request selected and the prompt left.
OPENERS = ("?", "M", "o", "r", "l", "g", ":", "u", "S", "k", "enter", "d d", "x", "q")


def running() -> Feeder:
    feeder = Feeder()
    feeder.play(fake_records((6, 5, 8, 3)), upto=3)
    return feeder


def commands_in_front(opener: str, key: str) -> list[Command] | None:
    """What a key puts into the queue while something is in front; None: it is text or an answer there."""
    feeder = running()
    found: list[Command] | None = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        nonlocal found
        await pilot.press("escape", "down", "down", *opener.split())
        front = app.screen
        assert isinstance(front, InFront), opener
        _ = feeder.commands
        answers = front._answers if isinstance(front, AskScreen) else ()
        if len(key) == 1 and (isinstance(app.focused, Input) or any(key in one.keys for one in answers)):
            found = None
            return
        await pilot.press(key)
        found = feeder.commands
        assert app.screen is front

    drive(feeder, script)
    return found


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(("key", "command"), [("f5", Pause()), ("f8", Step()), ("s", Step())])
def test_the_engine_is_paused_and_stepped_behind_it(opener: str, key: str, command: Command) -> None:
    assert commands_in_front(opener, key) in ([command], None)


def test_space_pauses_wherever_it_is_no_text() -> None:
    found = {opener: commands_in_front(opener, "space") for opener in OPENERS}
    takes_text = {"g", ":", "S"}
    assert found == {opener: [] if opener in takes_text else [Pause()] for opener in OPENERS}


def test_it_runs_on_by_the_same_key_and_both_are_said() -> None:
    feeder = running()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "?", "space")
        feeder.play(fake_records((6, 5, 8, 3))[3:], upto=4, status="paused", paused=True)
        app.main.look()
        await pilot.press("space")
        assert feeder.commands == [Pause(), Resume()]
        await pilot.pause()
        assert [one.message for one in app._notifications] == ["‖ paused", "▶ runs on"]

    drive(feeder, script)


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(cbtui.__path__, "cbtui."):
        if not found.name.endswith("__main__"):
            yield found.name


def test_nothing_stands_in_front_in_another_way() -> None:
    for name in modules():
        importlib.import_module(name)
    waiting, others = [ModalScreen], set()
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.startswith("cbtui.") and not issubclass(one, InFront):
            others.add(one)
    assert others == set()
