"""What is known of a server, when: nothing yet, as it was last seen, or held back here."""

from __future__ import annotations

from itertools import count

import pytest
from fake_server import DATA, fake_server
from following import following
from scripted import ScriptedSource, Watcher
from test_attach_screen import LLAMA, attached, llama_records, seen
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.drawing.server_figures import llama_line
from cbtui.looks.pieces import plain
from cbtui.widgets.what_happened import WhatHappenedBrief
from engine.attach.loop import UNKNOWN
from engine.attach.seen import StepSeen
from engine.attach.seen_records import SeenRecords
from engine.attach.source import SourceAway, SourceLocked, SourceLost
from engine.live.commands import Pause, RunUntil, Step
from engine.live.state import Failure
from engine.stream.records import QuietRecord, StepRecord
from tests.app.replay import Feeder, drive, state_after

SIZES = [(160, 50), (120, 40), (80, 24)]


@pytest.mark.parametrize("kind", [SourceLost, SourceAway, SourceLocked])
def test_what_is_wrong_with_a_server_is_the_title(kind: type[SourceLost]) -> None:
    source = ScriptedSource()
    source.openings.append(kind("one sentence"))
    watcher = Watcher(source)
    watcher.turn(2)
    failure = watcher.state.failure
    assert failure is not None and (failure.title, failure.message) == (kind.title, "one sentence")
    titles = [one.title for one in (SourceLost, SourceAway, SourceLocked)]
    assert len(set(titles)) == 3


@pytest.mark.parametrize("size", SIZES)
def test_before_a_server_has_answered_nothing_of_it_is_shown(size: tuple[int, int]) -> None:
    feeder = Feeder()
    away = Failure("server", "it does not answer", retry_s=2.0, title=SourceAway.title)
    feeder.ready(status="failed", model=None, provenance=UNKNOWN, speed=None, failure=away)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        text = seen(app)
        assert "no server to follow yet" in text and "Slots" in text
        for invented in ("3 slots", "budget", "CONTINUOUS", "idle 1", "0/3"):
            assert invented not in text, invented

    drive(feeder, script, size)


@pytest.mark.parametrize("size", SIZES)
def test_while_a_server_is_gone_its_slots_are_as_last_seen(size: tuple[int, int]) -> None:
    feeder = Feeder()
    failure = Failure("server", "it broke off", retry_s=4.0, title=SourceAway.title)
    lost = attached(LLAMA, status="failed", failure=failure)
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(llama_records(), upto=13, **attached(LLAMA))
        app.main.look()
        await pilot.pause()
        assert "last seen" not in seen(app)
        last = next(one for one in llama_records() if isinstance(one, StepRecord) and one.step == 13)
        feeder.publish(state_after(last, **lost))
        app.main.look()
        await pilot.pause()
        text = seen(app)
        assert "as last seen" in text and "decode" in text
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        assert "tokens when last seen" in seen(app) and "so far" not in seen(app)

    drive(feeder, script, size)


def test_how_far_a_server_is_ahead_is_said_while_its_steps_are_held_back() -> None:
    writer = SeenRecords(count())
    steps = [writer.records(StepSeen(n, n + 1.0), 3) for n in range(5)]
    watcher = Watcher(ScriptedSource([*steps[:2], ()]))
    watcher.turn(3)
    assert watcher.state.num_held_back == 0
    watcher.commands.put(Pause())
    watcher.loop._source.script.extend(steps[2:])  # type: ignore[attr-defined]
    watcher.turn(5)
    assert watcher.state.num_held_back == 3
    watcher.commands.put(Step())
    watcher.turn()
    assert (watcher.state.step, watcher.state.num_held_back) == (3, 2)


@pytest.mark.parametrize("size", SIZES)
def test_the_header_says_it_in_place_of_live(size: tuple[int, int]) -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        held = attached(LLAMA, paused=True, status="paused", newest_step=313)
        feeder.play(llama_records(), upto=13, **held)
        app.main.look()
        await pilot.pause()
        text = seen(app).partition("Slots")[0]
        assert "300" in text and "held back" in text and "live" not in text

    drive(feeder, script, size)


def test_a_recording_says_how_long_it_is_and_a_later_step_is_played_up_to() -> None:
    feeder = Feeder()
    recording = {"is_recording": True, "newest_step": 90, "is_all_read": True}
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(llama_records(), upto=13, **recording)
        app.main.look()
        await pilot.pause()
        assert "step 13 of 90" in seen(app) and "live" not in seen(app).partition("Slots")[0]
        await pilot.press("escape", "colon", "8", "0", "enter")
        assert feeder.commands == [RunUntil("step", 80)]
        await pilot.press("colon", "9", "1", "enter")
        assert feeder.commands == [] and "the recording ends with step 90" in seen(app)

    drive(feeder, script)


def test_figures_a_server_no_longer_tells_are_not_shown() -> None:
    writer = SeenRecords(count())
    writer.figures({"n_decode_total": 912.0})
    writer.records(StepSeen(0.0, 1.0), 3)
    writer.figures({})
    (quiet,) = writer.quiet(2.0)
    assert isinstance(quiet, QuietRecord) and quiet.events.figures == (("n_decode_total", None),)
    assert llama_line({"n_decode_total": None}, 44) == ()
    one = plain(llama_line({"n_decode_total": 912.0, "tokens_predicted_total": None}, 44))
    assert "912 steps" in one and "not told" not in one and "since its start" in one


def test_a_llama_server_that_comes_back_without_metrics_takes_its_figures_along() -> None:
    with fake_server() as server:
        server.answers["/slots"] = (DATA / "llama_slots_idle.json").read_bytes()
        server.answers["/props"] = (DATA / "llama_props.json").read_bytes()
        server.answers["/metrics"] = (DATA / "llama_metrics_busy.txt").read_bytes()
        with following(server.url) as one:
            server.answers["/slots"] = (503, b"")
            one.wait(lambda: one.state.failure)
            del server.answers["/metrics"]
            server.answers["/slots"] = (DATA / "llama_slots_idle.json").read_bytes()
            one.wait(lambda: not one.state.failure)
            one.wait(lambda: any(("n_decode_total", None) in r.events.figures for r in one.records))


@pytest.mark.parametrize("step", [7, 13])
def test_where_there_are_two_lines_what_is_inferred_is_not_cut(step: int) -> None:
    feeder = Feeder()
    feeder.ready(**attached(LLAMA))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(llama_records(), upto=step, **attached(LLAMA, paused=True, status="paused"))
        app.main.look()
        await pilot.pause()
        last = " ".join(str(line) for line in app.main.query_one("#news", WhatHappenedBrief).visible_lines())
        assert "rebuilt" in last or "inferred in part" in last or "missed before" in last

    drive(feeder, script, (80, 24))
