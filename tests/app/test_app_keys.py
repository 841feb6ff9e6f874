"""Every key of the main screen: the command it puts into the queue, or what changes in the view."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.screens.confirm import AskScreen
from cbtui.screens.help import HelpScreen
from cbtui.widgets.centre import Centre
from cbtui.widgets.header import Header
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.prompt_bar import PromptBar
from cbtui.widgets.text_view import TextView
from cbtui.widgets.waiting import Waiting
from engine.config import EngineConfig
from engine.live.commands import (
    Cancel,
    Command,
    Configure,
    Pause,
    Resume,
    SetMode,
    SetSpeed,
    Step,
    Submit,
)
from engine.live.state import EngineState
from engine.runner import Loading
from engine.workload import tutorial_workload
from tests.app.replay import Feeder, drive, fake_records


def running(**changes: object) -> Feeder:
    """In the third step: A has ended, B and C run, D has just entered, nobody waits."""
    feeder = Feeder()
    feeder.play(fake_records(), upto=3, **changes)
    return feeder


def waiting() -> Feeder:
    """In the first step: A, B and C run, D waits."""
    feeder = Feeder()
    feeder.play(fake_records(), upto=1)
    return feeder


def commands_after(feeder: Feeder, *keys: str) -> list[Command]:
    """Press keys, the prompt left first."""
    found: list[Command] = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", *keys)
        found.extend(feeder.commands)

    drive(feeder, script)
    return found


def said_after(feeder: Feeder, *keys: str) -> str:
    said: list[str] = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        said.append(app.main.query_one(PromptBar).notice)

    drive(feeder, script)
    return said[0]


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("space", Pause()),
        ("s", Step()),
        ("m", SetMode("static")),
        ("+", Configure(max_num_seqs=4)),
        ("-", Configure(max_num_seqs=2)),
        ("<", SetSpeed(4.0)),
        (">", SetSpeed(16.0)),
        ("f5", Pause()),
        ("f8", Step()),
        ("f6", SetMode("static")),
    ],
)
def test_a_key_puts_its_command(key: str, command: Command) -> None:
    assert commands_after(running(), key) == [command]


def test_space_runs_on_when_paused() -> None:
    assert commands_after(running(status="paused", paused=True), "space") == [Resume()]


def test_m_switches_back_from_static_and_from_a_pending_static() -> None:
    assert commands_after(running(mode="static"), "m") == [SetMode("continuous")]
    assert commands_after(running(pending_mode="static"), "m") == [SetMode("continuous")]


def test_capital_m_chooses_among_all_modes() -> None:
    assert commands_after(running(), "M", "2") == [SetMode("continuous-padded")]
    assert commands_after(running(), "M", "escape") == []


@pytest.mark.parametrize("key", ["f5", "f6", "f8"])
def test_function_keys_work_while_typing(key: str) -> None:
    feeder = running()
    found: list[Command] = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "i", key)
        assert app.main.query_one(PromptBar).line.value == "Hi"
        found.extend(feeder.commands)

    drive(feeder, script)
    assert len(found) == 1


def test_letters_typed_into_the_prompt_are_text() -> None:
    feeder = running()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("s", "m", "space", "d", "x", "q", "question_mark")
        assert app.main.query_one(PromptBar).line.value == "sm dxq?"
        assert feeder.commands == []

    drive(feeder, script)


def test_speed_ends_at_full_speed_and_at_the_slowest() -> None:
    assert commands_after(running(speed=128.0), ">") == [SetSpeed(None)]
    assert commands_after(running(speed=None), "<") == [SetSpeed(128.0)]
    assert "as fast as it can" in said_after(running(speed=None), "escape", ">")
    assert "slowest" in said_after(running(speed=0.5), "escape", "<")


def test_one_slot_is_the_least() -> None:
    feeder = running(config=EngineConfig(max_num_seqs=1))
    assert said_after(feeder, "escape", "-") == "one slot is the least"
    assert feeder.commands == [] or all(not isinstance(c, Configure) for c in feeder.commands)


def test_slots_count_from_what_is_asked_for_already() -> None:
    feeder = running(pending_config=EngineConfig(max_num_seqs=5))
    assert commands_after(feeder, "+") == [Configure(max_num_seqs=6)]


def test_slash_brings_the_prompt_back() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar = app.main.query_one(PromptBar)
        assert bar.line.has_focus
        await pilot.press("escape")
        assert not bar.line.has_focus
        await pilot.press("slash")
        assert bar.line.has_focus and bar.line.value == ""

    drive(running(), script)


def test_arrows_select_and_enter_opens_the_whole_text() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "down")
        first = app.main.selected
        await pilot.press("down")
        assert first is not None and app.main.selected not in (None, first)
        await pilot.press("up")
        assert app.main.selected == first
        await pilot.press("enter")
        assert isinstance(app.screen, TextView)
        await pilot.press("escape")
        assert app.screen is app.main

    drive(running(), script)


def test_x_cancels_a_waiting_request_at_once() -> None:
    feeder = waiting()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r3")
        await pilot.press("escape", "x")
        assert feeder.commands == [Cancel("r3")]

    drive(feeder, script)


def test_x_asks_once_about_a_running_request() -> None:
    feeder = waiting()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r1")
        await pilot.press("escape", "x")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("escape")
        assert feeder.commands == []
        await pilot.press("x", "y")
        assert feeder.commands == [Cancel("r1")]

    drive(feeder, script)


def test_x_says_what_is_missing() -> None:
    assert "select a request first" in said_after(running(), "escape", "x")


def test_x_says_that_an_ended_request_has_ended() -> None:
    feeder = running()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main._select("r0")
        await pilot.press("escape", "x")
        assert app.main.query_one(PromptBar).notice == "A has ended already"

    drive(feeder, script)


def test_d_submits_the_tutorials_six_together_and_asks_the_second_time() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "d")
        assert feeder.commands == [Submit(tuple(tutorial_workload()))]
        await pilot.press("d")
        assert isinstance(app.screen, AskScreen) and feeder.commands == []
        await pilot.press("n")
        assert feeder.commands == []
        await pilot.press("d", "y")
        assert feeder.commands == [Submit(tuple(tutorial_workload()))]

    drive(feeder, script)


def test_the_tutorials_six_are_raw_and_ignore_end_of_text() -> None:
    assert all(r.ignore_eos and not r.chat for r in tutorial_workload())


def test_c_switches_between_chat_and_raw() -> None:
    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("a", "enter", "escape", "c", "slash", "b", "enter")
        chats = [r.chat for command in feeder.commands for r in command.requests]  # type: ignore[union-attr]
        assert chats == [True, False]

    drive(feeder, script)


def test_keys_stay_single_keys_after_what_stood_in_front_has_closed() -> None:
    """Also where the tab shown has nothing to give focus to."""

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "5")
        for opens in ("g", "question_mark", "o"):
            await pilot.press(opens)
            assert app.screen is not app.main, opens
            await pilot.press("escape")
            await pilot.pause()
            assert app.screen is app.main
            assert not app.main.query_one(PromptBar).line.has_focus, opens

    drive(running(), script, size=(80, 24))


def test_z_shows_true_mask_cells_and_folds_again() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        mask = app.main.query_one(MaskGrid)
        await pilot.press("escape", "z")
        assert mask.shows_true_cells
        await pilot.press("z")
        assert not mask.shows_true_cells

    drive(running(), script)


@pytest.mark.parametrize("keys", [("escape", "question_mark"), ("f1",)])
def test_help_opens_and_closes(keys: tuple[str, ...]) -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert app.screen is app.main

    drive(running(), script)


def test_an_unbound_letter_says_how_to_type() -> None:
    assert said_after(running(), "escape", "j") == "/ to type, ? for all keys"


def test_the_answer_goes_with_the_next_key() -> None:
    assert said_after(running(), "escape", "j", "space") == ""


def test_keys_that_belong_to_small_screens_are_unbound_on_large_ones() -> None:
    assert said_after(running(), "escape", "2") == "/ to type, ? for all keys"


def test_settings_given_while_paused_say_when_they_act() -> None:
    paused = {"status": "paused", "paused": True}
    assert said_after(running(**paused), "escape", "m") == "static from the next step on"
    assert said_after(running(**paused), "escape", "+") == "4 slots from the next step on"
    assert said_after(running(**paused), "escape", "M", "2") == "continuous-padded from the next step on"
    assert said_after(running(), "escape", "m") == ""


def test_what_was_said_of_the_next_step_goes_when_it_is_there() -> None:
    feeder = running(status="paused", paused=True)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "+")
        bar = app.main.query_one(PromptBar)
        assert bar.notice == "4 slots from the next step on"
        app.main.look()
        assert bar.notice
        feeder.play(fake_records()[feeder.link.history.total :], upto=4, status="paused", paused=True)
        app.main.look()
        assert bar.notice == ""

    drive(feeder, script)


def test_a_key_that_finds_nothing_to_do_says_so() -> None:
    assert said_after(running(), "escape", "enter") == "↑↓ select a request first"
    assert said_after(Feeder(), "escape", "r") == (
        "a race needs the model, which is still loading: ask again when it is there"
    )
    assert said_after(Feeder(), "escape", "g") == (
        "load needs the model, which is still loading: ask again when it is there"
    )


@pytest.mark.parametrize(
    ("keys", "commands"),
    [
        ((">", ">", ">"), [SetSpeed(16.0), SetSpeed(32.0), SetSpeed(64.0)]),
        (("<", ">"), [SetSpeed(4.0), SetSpeed(8.0)]),
        (("+", "+", "-"), [Configure(max_num_seqs=n) for n in (4, 5, 4)]),
        (("m", "m"), [SetMode("static"), SetMode("continuous")]),
        (("space", "space", "space"), [Pause(), Resume(), Pause()]),
    ],
)
def test_keys_faster_than_the_engine_count_from_what_was_asked(
    keys: tuple[str, ...], commands: list[Command]
) -> None:
    assert commands_after(running(), *keys) == commands


def test_what_was_asked_is_forgotten_once_the_engine_has_had_its_say() -> None:
    feeder = running()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", ">")
        assert feeder.commands == [SetSpeed(16.0)]
        for _ in range(3):  # nobody has taken it in: somebody else has set another speed meanwhile
            feeder.publish(msgspec.structs.replace(feeder.link.mailbox.latest(), speed=2.0))
        await pilot.press(">")
        assert feeder.commands == [SetSpeed(4.0)]

    drive(feeder, script)


def test_the_queue_follows_the_cursor_and_goes_back_to_its_head() -> None:
    feeder = Feeder()
    records = fake_records(caps=(2,) * 30, slots=1)
    feeder.play(records, upto=1)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        waiting = app.main.query_one(Waiting)
        await pilot.press("escape", "tab", *["down"] * 10)
        assert app.main.selected == "r10" and str(waiting.border_title) == "Waiting 5–10 of 29"
        feeder.play(records[feeder.link.history.total :], upto=15)
        app.main.look()
        await pilot.pause()
        assert any("▸" in plain(line) for line in waiting.visible_lines())
        feeder.play(records[feeder.link.history.total :], upto=22)
        app.main.look()
        await pilot.pause()
        assert waiting.first_line == 0 and str(waiting.border_title) == "Waiting 1–6 of 19"

    drive(feeder, script)


def test_a_pause_while_the_model_loads_is_said_and_seen() -> None:
    feeder = Feeder()
    feeder.publish(EngineState(loading=Loading("reading the weights"), paused=True))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        header = plain(app.main.query_one(Header).visible_lines()[0])
        assert "‖ paused · ◌ reading the weights" in header
        assert "Paused: once it is there they wait for space" in str(app.main.query_one(Centre).content)
        await pilot.press("escape", "space")
        assert app.main.query_one(PromptBar).notice == "runs as soon as the model is there"

    drive(feeder, script)


def test_the_palette_is_made_from_the_same_table() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        found = {command.title: command.callback for command in app.get_system_commands(app.main)}
        assert "Choose one of all modes" in found and "Quit" in found
        await pilot.press("ctrl+p")
        assert app.screen is not app.main
        await pilot.press("escape")

    drive(running(), script)


def test_a_click_on_the_bottom_line_does_what_its_key_does() -> None:
    feeder = running()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.click("#keys", offset=(22, 0))
        assert feeder.commands == [Pause()]

    drive(feeder, script)
