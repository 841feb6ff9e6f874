"""Keys that arrive together do what the same keys do when each one is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.keys import key_to_character
from textual.pilot import Pilot
from textual.widgets import Input

from cbtui.app import CbtuiApp
from cbtui.keys import APP_KEYS, PROMPT_KEYS, SCREEN_KEYS, TAB_KEY
from cbtui.keys_in_turn import apart
from cbtui.widgets.prompt_bar import PromptBar
from engine.live.guest import Lend
from tests.app.replay import Feeder, drive, fake_records


def character_of(key: str) -> str | None:
    """What a key writes, as `Pilot.press` has it."""
    return {"minus": "-", "plus": "+", "slash": "/"}.get(key) or key_to_character(key)


#: Stopping the process is no matter of screens.
NOT_HERE = {"app.suspend"}
SINGLE = sorted(
    {one for key in (*SCREEN_KEYS, *APP_KEYS) if key.id not in NOT_HERE for one in key.keys.split(",")}
)
#: Those that work while a prompt is typed.
TYPING = sorted(
    {
        one
        for key in (*SCREEN_KEYS, *PROMPT_KEYS, *APP_KEYS, TAB_KEY)
        if key.id not in NOT_HERE
        for one in key.keys.split(",")
        if character_of(one) is None
    }
)


@pytest.fixture(autouse=True)
def _pictures_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the keys saves a picture in the working directory."""
    monkeypatch.chdir(tmp_path)


def waits_and_runs() -> Feeder:
    """A has the first slot, others run, one waits; every kind of question can be asked."""
    feeder = Feeder()
    feeder.play(fake_records((6, 5, 8, 3)), upto=3)
    return feeder


def outcome(keys: tuple[str, ...], *, together: bool) -> object:
    """What keys lead to: screens, what stands in their fields, what has focus, commands, the answer."""
    feeder = waits_and_runs()
    found: list[object] = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        if together:
            for key in keys:
                app.post_message(events.Key(key, character_of(key)))
            await pilot.pause()
            while app.return_code is None and not app.keys_in_turn.is_idle:
                await pilot.pause()
            await pilot.pause()
        else:
            await pilot.press(*keys)
        found.extend(
            (
                [type(screen).__name__ for screen in app.screen_stack],
                [[field.value for field in screen.query(Input)] for screen in app.screen_stack],
                type(app.focused).__name__,
                [repr(one) for one in feeder.commands if not isinstance(one, Lend)],
                app.main.query_one(PromptBar).notice,
                app.main.shown,
                app.return_code,
            )
        )

    drive(feeder, script)
    return found


def with_focus_on_panels(*keys: str) -> tuple[str, ...]:
    return ("escape", "down", *keys)


@pytest.mark.parametrize("key", SINGLE)
def test_what_follows_a_single_key_goes_where_the_key_has_led(key: str) -> None:
    keys = with_focus_on_panels(key, "2", "enter")
    assert outcome(keys, together=True) == outcome(keys, together=False)


@pytest.mark.parametrize("key", TYPING)
def test_what_follows_a_key_while_typing_goes_where_the_key_has_led(key: str) -> None:
    keys = ("H", "i", key, "2", "z")
    assert outcome(keys, together=True) == outcome(keys, together=False)


def opens(key: str) -> bool:
    """Whether a key brings something in front of the main screen."""
    screens = outcome(with_focus_on_panels(key), together=False)
    assert isinstance(screens, list)
    return len(screens[0]) > 1


def test_so_do_keys_behind_one_that_closes_what_it_opened() -> None:
    found = [key for key in SINGLE if opens(key)]
    assert len(found) > 10
    for key in found:
        keys = with_focus_on_panels(key, "escape", "plus", key, "escape", "slash", "k")
        assert outcome(keys, together=True) == outcome(keys, together=False), key


@pytest.mark.parametrize("letter", ["m", "M", "r", "l"])
def test_escape_and_a_letter_that_the_terminal_sent_as_one_are_two(letter: str) -> None:
    name = f"alt+shift+{letter.lower()}" if letter.isupper() else f"alt+{letter}"
    alt, escape = events.Key(name, letter), events.Key("escape", "\x1b")
    pressed = [(one.key, one.character) for one in apart(alt)]
    assert pressed == [("escape", None), (letter, letter)] and apart(escape) == (escape,)
    feeder = waits_and_runs()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.post_message(alt)
        await pilot.pause()
        assert app.main.query_one(PromptBar).line.value == ""
        assert app.screen is not app.main or feeder.commands

    drive(feeder, script)
