"""The live settings: a form, what it sends, and what is seen of it on the screen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.screens.live_settings import LiveSettings, SettingLines
from cbtui.settings_form import SETTINGS, SettingsForm, in_force, pending
from engine.config import ConfigError, EngineConfig
from engine.live.commands import Configure, SetMode, SetSpeed
from engine.live.state import EngineState
from tests.app.replay import Feeder, drive, fake_records

STATE = EngineState(status="running", speed=8.0)


def at(name: str, form: SettingsForm) -> SettingsForm:
    while form.setting.name != name:
        form.select(1)
    return form


def test_nothing_changed_sends_nothing() -> None:
    assert SettingsForm(STATE).commands(STATE) == []


def test_only_what_was_changed_is_sent() -> None:
    form = SettingsForm(STATE)
    at("slots", form).change(1)
    at("mode", form).change(-1)
    at("speed", form).type("m")
    at("prefix_caching", form).change(1)
    assert form.commands(STATE) == [
        Configure(max_num_seqs=4, prefix_caching=True),
        SetMode("continuous-padded"),
        SetSpeed(None),
    ]


def test_a_typed_number_replaces_the_old_one() -> None:
    form = at("budget", SettingsForm(STATE))
    for digit in "512":
        assert form.type(digit)
    assert form.commands(STATE) == [Configure(max_num_batched_tokens=512)]
    form.erase()
    assert form.wanted["budget"] == "51"
    assert not form.type("x")


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("budget", "2", "must be at least max_num_seqs"),
        ("slots", "300", "must be at most 256"),
        ("slots", "0", "must be at least 1"),
        ("speed", "0", "above 0, or max"),
        ("speed", ".", "above 0, or max"),
    ],
)
def test_what_cannot_work_is_said_in_words(name: str, typed: str, words: str) -> None:
    form = at(name, SettingsForm(STATE))
    for character in typed:
        form.type(character)
    with pytest.raises(ConfigError, match=words):
        form.commands(STATE)


def test_an_emptied_number_is_said_too() -> None:
    form = at("slots", SettingsForm(STATE))
    form.erase()
    with pytest.raises(ConfigError, match="slots must be a whole number"):
        form.commands(STATE)


def test_what_waits_for_the_next_step_is_told_apart() -> None:
    config = msgspec.structs.replace(STATE.config, max_num_seqs=6)
    state = msgspec.structs.replace(STATE, pending_config=config, pending_mode="static")
    assert pending(state) == {"slots": "6", "mode": "static"}
    assert in_force(state)["slots"] == "3"
    assert SettingsForm(state).commands(state) == []


@given(st.lists(st.sampled_from(["up", "down", "left", "right", "erase", *"0123456789.m"]), max_size=60))
def test_no_sequence_of_keys_sends_nonsense(keys: list[str]) -> None:
    form = SettingsForm(STATE)
    for key in keys:
        match key:
            case "up" | "down":
                form.select(1 if key == "down" else -1)
            case "left" | "right":
                form.change(1 if key == "right" else -1)
            case "erase":
                form.erase()
            case _:
                form.type(key)
    try:
        commands = form.commands(STATE)
    except ConfigError:
        return
    for command in commands:
        match command:
            case Configure():
                wanted = {k: v for k, v in msgspec.structs.asdict(command).items() if v is not None}
                wanted.pop("preempt_surplus", None)
                msgspec.structs.replace(EngineConfig(), **wanted)
            case SetSpeed(speed):
                assert speed is None or speed > 0


def lines(app: CbtuiApp) -> list[str]:
    return [plain(line) for line in app.screen.query_one(SettingLines).visible_lines()]


def test_on_the_screen_a_change_is_asked_for_waits_and_comes_into_force() -> None:
    feeder = Feeder()
    records = fake_records()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "o")
        assert isinstance(app.screen, LiveSettings)
        feeder.commands  # noqa: B018  # what came before
        await pilot.press("down", "right", "right", "enter")
        assert feeder.commands == [Configure(max_num_seqs=5)]
        state = app.main.state
        config = msgspec.structs.replace(state.config, max_num_seqs=5)
        feeder.publish(msgspec.structs.replace(state, pending_config=config))
        app.main.look()
        await pilot.pause()
        assert "now 3, 5 at the next step" in lines(app)[1]
        feeder.publish(msgspec.structs.replace(state, config=config, pending_config=None))
        app.main.look()
        await pilot.pause()
        assert lines(app)[1].endswith("now 5")
        await pilot.press("escape")
        assert app.screen is app.main

    feeder.play(records, upto=2)
    drive(feeder, script)


def test_on_the_screen_every_setting_can_change_at_once() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "o")
        feeder.commands  # noqa: B018  # what came before
        await pilot.press(*"512", "down", "right", "down", "right", "down", "right", "down", "right")
        await pilot.press("down", "right", "enter")
        assert feeder.commands == [
            Configure(max_num_seqs=4, max_num_batched_tokens=512, policy="priority", prefix_caching=True),
            SetMode("chunked"),
            SetSpeed(16.0),
        ]

    feeder.play(fake_records(), upto=2)
    drive(feeder, script)


def test_on_the_screen_what_cannot_work_is_not_sent() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "o", "2")
        feeder.commands  # noqa: B018
        await pilot.press("enter")
        assert feeder.commands == []
        about = app.screen.query_one("#settings-about")
        assert about.has_class("-error") and "at least max_num_seqs" in str(about.render())
        assert isinstance(app.screen, LiveSettings)

    feeder.play(fake_records(), upto=2)
    drive(feeder, script, size=(80, 24))


def test_every_setting_says_what_it_does() -> None:
    assert all(setting.about or setting.choices for setting in SETTINGS)
