"""The recording that plays while the model loads: labelled, looped, and gone with the first key."""

from __future__ import annotations

import subprocess
import sys

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.welcome import TRACE, Recorded, read_trace
from cbtui.widgets.centre import RECORDED, Centre
from cbtui.widgets.slots import Slots
from engine.live.state import Arriving, EngineState, Failure
from engine.runner import Loading
from tests.app.replay import Feeder, drive


def loading() -> Feeder:
    feeder = Feeder()
    feeder.publish(EngineState(loading=Loading("fetching model", 41_000_000, 93_000_000, "bytes")))
    return feeder


def is_playing(app: CbtuiApp) -> bool:
    label = app.main.query_one(Slots).border_subtitle
    assert (label == RECORDED) is (app.main.recorded is not None)
    return app.main.recorded is not None


def test_the_trace_is_small_and_of_the_tutorial() -> None:
    header, records = read_trace()
    assert TRACE.stat().st_size < 150_000
    assert header.model == "SmolLM2-135M-Instruct"
    assert [r.request_id for r in records[0].events.submitted] == ["r0", "r1", "r2", "r3", "r4", "r5"]
    admitted = {a.request_id: r.step - 1 for r in records for a in r.events.admitted}
    assert (admitted["r3"], admitted["r4"], admitted["r5"]) == (6, 36, 50)


def test_it_begins_again_after_the_last_step() -> None:
    recorded = Recorded()
    for _ in range(len(read_trace()[1]) + 1):
        recorded.advance()
    assert recorded.step == 1
    assert recorded.frame().state.step == 1


def test_it_plays_in_the_panels_and_the_header_stays_true() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.begin_welcome()
        for _ in range(6):
            app.main.advance_welcome()
        await pilot.pause()
        assert is_playing(app)
        assert "41/93 MB" in str(app.main.query_one(Centre).content)
        assert app.main.follower.state.status == "loading"

    drive(loading(), script)


@pytest.mark.parametrize("key", ["H", "escape", "f1", "ctrl+c"])
def test_the_first_key_ends_it_and_is_not_lost(key: str) -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.begin_welcome()
        await pilot.press(key)
        await pilot.pause()
        assert not is_playing(app)
        if key == "H":
            assert app.main.query_one("#prompt-text").value == "H"  # type: ignore[attr-defined]
        app.main.begin_welcome()
        assert not is_playing(app)

    drive(loading(), script)


def test_it_never_begins_once_there_is_something_real() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.begin_welcome()
        assert not is_playing(app)

    drive(feeder, script)


@pytest.mark.parametrize("what", ["ready", "failed", "asked"])
def test_the_model_a_failure_or_a_prompt_ends_it(what: str) -> None:
    feeder = loading()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.begin_welcome()
        assert is_playing(app)
        if what == "ready":
            feeder.ready()
        elif what == "failed":
            feeder.publish(EngineState(status="failed", failure=Failure("load", "it is gone")))
        else:
            waits = Arriving("r0", 0, "Hi", 4, "loading")
            feeder.publish(EngineState(loading=Loading("fetching"), arriving_count=1, arriving=(waits,)))
        app.main.look()
        await pilot.pause()
        assert not is_playing(app)

    drive(feeder, script)


def test_the_recording_never_reaches_the_engine() -> None:
    feeder = loading()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.begin_welcome()
        app.main.advance_welcome()
        assert feeder.commands == [] and app.main.follower.ledger.stories == {}

    drive(feeder, script)


def test_the_first_picture_needs_nothing_of_it() -> None:
    code = "import sys, cbtui.app; print('cbtui.following.welcome' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
