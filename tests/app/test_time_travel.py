"""Walking through recorded steps on the screen: every panel shows that step, commands act on now."""

from __future__ import annotations

from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.link import Link
from cbtui.looks.pieces import plain
from cbtui.screens.ask_number import AskNumberScreen
from cbtui.screens.blocks import BlockGrid, BlocksScreen
from cbtui.widgets.lines import LinesView
from cbtui.widgets.prompt_bar import PromptBar
from cbtui.widgets.text_view import TextView
from cbtui.widgets.timeline import Timeline
from engine.live.channels import History, Mailbox
from engine.live.commands import Cancel, Pause, RunUntil, Step
from engine.live.state import EngineState
from engine.stream.records import QuietRecord
from tests.app.replay import Feeder, drive, fake_records, later, traced_records


def played(upto: int = 8) -> Feeder:
    """Four requests on three slots: A ends in step 2, D enters in 3, B and D end in 5, C in 8."""
    feeder = Feeder()
    feeder.play(fake_records(), upto=upto)
    return feeder


def text(app: CbtuiApp, panel: str) -> str:
    return "\n".join(plain(line) for line in app.main.query_one(f"#{panel}", LinesView).visible_lines())


def said(app: CbtuiApp) -> str:
    return app.main.query_one(PromptBar).notice


def test_every_panel_shows_the_step() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0")
        assert app.main.shown == 1
        assert "step 1 of 8" in text(app, "header")
        assert "D" in text(app, "waiting") and "no free slot" in text(app, "waiting")
        assert "A" in text(app, "slots") and "1/2" in text(app, "slots")
        assert "[1, 24]" in str(app.main.query_one("#row").border_title)
        assert "done 0 of 4" in text(app, "counters") and "3 tokens in 1 step" in text(app, "counters")
        assert "step 1 " in text(app, "happened") and "entered" in text(app, "happened")
        assert not text(app, "finished").startswith(" A")
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert "step 3 of 8" in text(app, "header")
        assert " D " in text(app, "slots") and "Nobody waits" in text(app, "waiting")
        assert "done 1 of 4" in text(app, "counters")
        await pilot.press("full_stop")
        assert "live" in text(app, "header") and "done 4 of 4" in text(app, "counters")

    drive(played(), script)


def test_after_the_last_recorded_step_comes_now() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "left_square_bracket")
        assert app.main.shown == 8 and "step 8 of 8" in text(app, "header")
        await pilot.press("right_square_bracket")
        assert app.main.shown is None and "live" in text(app, "header")
        await pilot.press("right_square_bracket")
        assert said(app) == "this is now: nothing is later"

    drive(played(), script)


def test_curly_brackets_stop_where_something_happened() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        stops = []
        await pilot.press("escape")
        for _ in range(5):
            await pilot.press("left_curly_bracket")
            stops.append(app.main.shown)
        assert stops == [8, 5, 3, 2, 1]
        await pilot.press("left_curly_bracket")
        assert "step 1 is the first" in said(app) and app.main.shown == 1

    drive(played(), script)


def test_a_step_by_its_number() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "colon")
        assert isinstance(app.screen, AskNumberScreen)
        await pilot.press("6", "enter")
        assert app.screen is app.main and app.main.shown == 6
        await pilot.press("colon", "9", "9", "enter")
        assert app.main.shown == 6 and "not there yet: the newest is step 8" in said(app)
        await pilot.press("colon", "escape")
        assert app.main.shown == 6

    drive(played(), script)


def test_a_click_on_the_timeline_goes_there() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        # A border, a column of padding, the slots' numbers; the fourth column is the fourth step.
        await pilot.click("#timeline", offset=(4 + 3, 2))
        await pilot.pause()
        assert app.main.shown == 4
        await pilot.click("#timeline", offset=(4 + 60, 2))
        assert app.main.shown == 4

    drive(played(), script)


def test_the_engine_runs_on_and_the_view_stays() -> None:
    feeder = played(upto=4)
    records = fake_records()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0")
        before = text(app, "slots"), text(app, "counters"), text(app, "happened")
        feeder.play([r for r in records if r.step > 4])
        app.main.look()
        assert "step 1 of 8" in text(app, "header")
        assert (text(app, "slots"), text(app, "counters"), text(app, "happened")) == before
        assert "8" in text(app, "timeline")

    drive(feeder, script)


def test_panels_of_the_past_are_not_drawn_again_while_the_engine_runs_on() -> None:
    feeder = played(upto=4)
    records = fake_records()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0")
        names = ("slots", "waiting", "counters", "row", "mask", "finished", "happened")
        drawn = {name: app.main._drawn[name] for name in names}
        feeder.play([r for r in records if r.step > 4])
        app.main.look()
        assert {name: app.main._drawn[name] for name in names} == drawn

    drive(feeder, script)


def test_commands_act_on_now_and_say_so() -> None:
    feeder = played()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0", "space")
        assert feeder.commands == [Pause()]
        assert said(app) == "paused at step 8, . for live" and app.main.shown == 1
        await pilot.press("m")
        assert said(app) == "static asked for at step 8, . for live"

    drive(feeder, script)


def test_a_prompt_typed_while_looking_back_is_queued_now() -> None:
    feeder = played()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0", "slash", "H", "i", "enter")
        await pilot.pause()
        moved = later(fake_records(caps=(3,))[:1], 8, 4)[0]
        feeder.link.history.append(QuietRecord(8, 9.0, moved.events))
        feeder.publish(feeder.link.mailbox.latest())
        app.main.look()
        assert said(app) == "E queued at step 8, . for live" and app.main.shown == 1

    drive(feeder, script)


def test_x_cancels_on_the_live_engine() -> None:
    feeder = Feeder()
    feeder.play(fake_records(), upto=1)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0")
        app.main._select("r3")
        await pilot.press("x")
        assert feeder.commands == [Cancel("r3")]
        assert said(app) == "D cancelled at step 1, . for live"

    drive(feeder, script)


def test_stepping_returns_to_live() -> None:
    feeder = played()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        for key in ("s", "f8"):
            await pilot.press("escape", "0", key)
            assert app.main.shown is None and feeder.commands == [Step()]

    drive(feeder, script)


def test_so_many_steps() -> None:
    feeder = played()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0", "S", "enter")
        assert feeder.commands == [Step(10)] and app.main.shown is None
        await pilot.press("S", "2", "5", "enter")
        assert feeder.commands == [Step(25)]
        await pilot.press("S", "0", "enter")
        assert isinstance(app.screen, AskNumberScreen) and feeder.commands == []

    drive(feeder, script)


def test_run_until() -> None:
    feeder = played()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        for key, what in (("f", "finished"), ("a", "admitted"), ("p", "preempted"), ("d", "drained")):
            await pilot.press("escape", "u", key)
            assert feeder.commands == [RunUntil(what)]
        assert said(app) == "runs until nothing is left to do; space pauses"
        await pilot.press("u", "s", "5", "enter")
        assert isinstance(app.screen, AskNumberScreen)  # step 5 is over
        await pilot.press("0", "enter")
        assert feeder.commands == [RunUntil("step", 50)]
        await pilot.press("u", "f")
        feeder.ready(status="running", until="the next finish")
        app.main.look()
        assert "until the next finish" in text(app, "header")
        feeder.ready(status="paused", paused=True, step=9)
        app.main.look()
        assert said(app) == "paused at step 9: the next finish"

    drive(feeder, script)


def test_a_step_dropped_from_under_the_view_moves_it_to_the_oldest() -> None:
    feeder = Feeder(Link(Mailbox(EngineState(version=1)), History(limit=20)))
    records = fake_records(caps=(40, 40, 40))
    feeder.play(records, upto=10)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0")
        for record in records:
            if record.step > 10:
                feeder.play([record])
                app.main.look()
        oldest = app.main.follower.chronicle.first_step
        assert oldest is not None and oldest > 1 and app.main.shown == oldest
        assert "dropped (--history 20)" in said(app)

    drive(feeder, script)


def test_before_the_first_step_the_keys_say_so() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        for key in ("left_square_bracket", "left_curly_bracket", "0", "colon"):
            await pilot.press(key)
            assert said(app) == "no step is recorded yet", key
        await pilot.press("k", "escape", "t")
        assert app.screen is app.main

    drive(feeder, script)


def test_an_earlier_run_is_as_near_as_this_one() -> None:
    feeder = Feeder()
    static = fake_records(mode="static")
    feeder.play(static)
    steps = static[-1].step
    feeder.play(later(fake_records(), steps, 4))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert app.main.query_one("#twin").display
        await pilot.press("escape", "0")
        assert not app.main.query_one("#twin").display
        assert "STATIC" in text(app, "header") and "step 1 of" in text(app, "header")
        assert str(steps) in text(app, "timeline")
        await pilot.press("full_stop")
        assert app.main.query_one("#twin").display

    drive(feeder, script)


def test_the_request_on_screen_follows_the_view() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r2")
        await pilot.press("escape", "0", "enter")
        assert isinstance(app.screen, TextView)
        facts = app.screen.query_one("RequestFacts", LinesView)

        def told() -> str:
            return "\n".join(plain(line) for line in facts.visible_lines())

        assert "Tokens 1 of 8" in told() and "finished" not in told()
        await pilot.press("right_square_bracket")
        assert app.main.shown == 2 and "Tokens 2 of 8" in told()
        await pilot.press("full_stop")
        assert "Tokens 8 of 8" in told() and "finished (length)" in told()
        await pilot.press("escape")
        assert app.screen is app.main

    drive(played(), script)


def test_blocks_follow_the_view() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "0", "k")
        assert isinstance(app.screen, BlocksScreen)
        grid = app.screen.query_one(BlockGrid)
        assert "3 of 512 blocks in use" in plain(grid.visible_lines()[0])
        await pilot.press("left_curly_bracket", "full_stop", "left_square_bracket")
        assert "1 of 512 blocks in use" in plain(grid.visible_lines()[0])
        await pilot.press("k")
        assert app.screen is app.main

    drive(played(), script)


def test_t_zooms_the_timeline() -> None:
    feeder = Feeder()
    feeder.play(traced_records("trace-static.jsonl"))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        timeline = app.main.query_one("#timeline", Timeline)
        await pilot.press("escape", "3")
        assert str(timeline.border_title) == "Timeline  2 steps a column"
        await pilot.press("t")
        assert "steps a column" not in said(app) and "1 step a column" in said(app)
        assert str(timeline.border_title).startswith("Timeline  1 step a column · steps ")
        await pilot.press("t")
        assert str(timeline.border_title) == "Timeline  2 steps a column"

    drive(feeder, script, size=(60, 24))
