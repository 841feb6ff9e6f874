"""The settings file: what is read, what is said of what is wrong; themes, keys, palette, pictures."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cbtui.__main__ import run
from cbtui.app import CbtuiApp, picture_path
from cbtui.cli.settings_command import template
from cbtui.keymap import remappable, remapped
from cbtui.keys import APP_KEYS, LESSON_KEYS, RACE_KEYS, SCREEN_KEYS
from cbtui.looks.colours import contrast
from cbtui.looks.pieces import plain
from cbtui.looks.theme import THEMES
from cbtui.options import LaunchOptions
from cbtui.screens.confirm import AskScreen
from cbtui.screens.help import HelpScreen
from cbtui.screens.race import RaceScreen
from cbtui.settings import Settings, SettingsError, keep_theme, read_settings, settings_path
from cbtui.widgets.key_bar import KeyBar
from engine.live.commands import Step
from tests.app.replay import Feeder, drive, fake_records, traced_records

#: Whether a terminal takes what it is given cannot be known.
MAYBE = " (if the terminal lets it)"


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, "utf-8")
    return path


def test_no_file_is_the_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "settings.toml") == read_settings(None) == Settings()


def test_what_stands_there_is_read(tmp_path: Path) -> None:
    text = 'theme = "light"\nspeed = "max"\nslots = 5\nchat = false\n[keys]\n"engine.step" = "n,f9"\n'
    found = read_settings(written(tmp_path, text))
    assert found == Settings(theme="light", speed="max", slots=5, chat=False, keys={"engine.step": "n,f9"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('them = "dark"', "line 1: there is no setting 'them'; did you mean 'theme'?"),
        ("\nzzz = 1", "line 2: there is no setting 'zzz'; there are theme, speed"),
        ('theme = "pink"', "line 1: theme must be 'dark' or 'light' or 'high-contrast', not 'pink'"),
        ("# x\nslots = 0", "line 2: slots must be a whole number from 1 to 256, not 0"),
        ("slots = true", "line 1: slots must be a whole number from 1 to 256, not true"),
        ("speed = -1", "speed must be a number of steps a second from 0.001"),
        ("speed = nan", "speed must be a number"),
        ("a = \n", "line 1: invalid value"),
        ("keys = 3", "line 1: keys must be a table"),
        ('[keys]\n"engine.step" = 3', "line 2: engine.step must be keys in quotation marks, not 3"),
        ('[keys]\n"engine.stap" = "n"', "line 2: there is no key 'engine.stap'; did you mean 'engine.step'?"),
        ('[keys]\n"engine.step" = "blub"', "line 2: there is no key called 'blub' on a keyboard"),
        ('[keys]\n"engine.step" = "m"', "line 2: engine.step and engine.mode would share the key 'm'"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_settings(path)
    assert str(path) in str(caught.value) and words in str(caught.value)


def test_a_file_that_is_no_text_or_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "settings.toml", tmp_path):
        with pytest.raises(SettingsError, match="cannot be read"):
            read_settings(path)


def test_the_template_is_valid_once_its_marks_are_gone(tmp_path: Path) -> None:
    text = template()
    assert tomllib.loads(text) == {}
    plain_text = re.sub(r"^# (?=[a-z_]+ = |\[keys\]|\")", "", text, flags=re.MULTILINE)
    found = read_settings(written(tmp_path, plain_text))
    assert found.keys and set(found.keys) == set(remappable())
    assert found.theme == "dark" and found.slots == 3


def test_the_command_prints_path_and_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CBTUI_SETTINGS", str(tmp_path / "mine.toml"))
    assert run(["settings"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# {tmp_path / 'mine.toml'}  (not there yet)")
    (tmp_path / "mine.toml").write_text("slots = 0")
    assert run(["settings"]) == 2
    assert "mine.toml, line 1: slots must be" in capsys.readouterr().err


def test_the_variable_may_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBTUI_SETTINGS", "")
    assert settings_path() is None
    monkeypatch.delenv("CBTUI_SETTINGS")
    path = settings_path()
    assert path is not None and path.name == "settings.toml"


# -- themes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", THEMES)
def test_a_themes_texts_are_legible_on_its_grounds(name: str) -> None:
    theme = THEMES[name]
    for ground in (theme.background, theme.surface):
        for colour in (theme.foreground, theme.accent, theme.warning, theme.error, theme.secondary):
            assert ground and colour and contrast(colour, ground) >= 4.5, (colour, ground)
    if name == "high-contrast":
        assert contrast(theme.foreground or "", theme.background or "") >= 15


def test_the_command_line_goes_before_the_file() -> None:
    settings = Settings(theme="light")
    assert CbtuiApp(settings=settings).theme == "cbtui-light"
    app = CbtuiApp(options=LaunchOptions(theme="high-contrast"), settings=settings)
    assert app.theme == "cbtui-high-contrast" and app.has_class("-high-contrast")


def test_every_theme_draws_and_can_be_chosen_while_it_runs() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        for name in THEMES:
            app.use_theme(name)
            await pilot.pause()
            assert app.has_class(f"-{name}")
            assert app.export_screenshot()

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script)


# -- keys ------------------------------------------------------------------------------------------


def test_a_users_key_does_what_the_old_one_did_and_is_shown_everywhere() -> None:
    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    app = CbtuiApp(feeder.link, settings=Settings(keys={"engine.step": "n,f9", "app.help": "h,f1"}))

    async def body() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            await pilot.press("escape")
            feeder.commands  # noqa: B018
            await pilot.press("n")
            assert feeder.commands == [Step()]
            await pilot.press("s")
            assert feeder.commands == []
            bar = plain(app.main.query_one(KeyBar).visible_lines()[0])
            assert "n step" in bar and "s step" not in bar and "h help" in bar
            await pilot.press("h")
            assert isinstance(app.screen, HelpScreen)

    asyncio.run(body())


def test_a_remapped_key_is_written_as_people_write_it() -> None:
    key = remapped(remappable()["engine.step"], {"engine.step": "?,f9"})
    assert (key.shown, key.typing, key.keys) == ("?", "F9", "question_mark,f9")


def test_the_palette_has_every_action_and_the_themes() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        titles = {command.title for command in app.get_system_commands(app.screen)}
        needs_a_place = ("select", "tab", "interrupt", "retry")
        for key in (*SCREEN_KEYS, *APP_KEYS):
            if key.tooltip and not key.action.startswith(needs_a_place):
                assert key.tooltip in titles
        assert {f"Theme: {name}" for name in THEMES} <= titles

    drive(Feeder(), script)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, 'theme = "light"\n'),
        ("speed = 4\n", 'theme = "light"\nspeed = 4\n'),
        ('theme = "dark"  # as at home\nslots = 2\n', 'theme = "light"  # as at home\nslots = 2\n'),
        ('[keys]\n"app.help" = "h"\n', 'theme = "light"\n[keys]\n"app.help" = "h"\n'),
        ('# theme = "dark"\n', 'theme = "light"\n# theme = "dark"\n'),
    ],
)
def test_a_kept_theme_changes_nothing_else_in_the_file(
    tmp_path: Path, before: str | None, after: str
) -> None:
    path = tmp_path / "folder" / "settings.toml"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
    keep_theme(path, "light")
    assert path.read_text() == after and read_settings(path).theme == "light"


def test_a_theme_is_not_kept_in_a_file_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("slots = many\n")
    with pytest.raises(SettingsError, match="line 1"):
        keep_theme(path, "light")
    assert path.read_text() == "slots = many\n"


def test_the_palette_keeps_the_theme_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("CBTUI_SETTINGS", str(path))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        commands["Theme: high-contrast"].callback()
        assert "for this session" in commands["Theme: high-contrast"].help
        commands["Keep this theme"].callback()
        assert answer(app).strip() == f"high-contrast is kept in {path}"

    drive(Feeder(), script)
    assert read_settings(path).theme == "high-contrast"


def test_the_palette_has_the_keys_of_the_screen_in_front_and_of_the_panel_with_the_keyboard() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        def titles() -> set[str]:
            return {command.title for command in app.get_system_commands(app.screen)}

        await pilot.press("escape")
        assert {"The request below, here", "Select the request below"} <= titles()
        assert "Load the model again after a failure" not in titles()
        await pilot.press("l", "1")
        assert {key.tooltip for key in LESSON_KEYS} <= titles()
        assert "Pause the engine, or let it run on" not in titles()
        await pilot.press("escape", "r", "enter")
        assert {key.tooltip for key in RACE_KEYS if key.id != "race.view"} <= titles()

    feeder = Feeder()
    feeder.ready()
    drive(feeder, script)


def test_keys_of_race_and_lessons_can_be_moved_and_are_named_as_moved() -> None:
    feeder = Feeder()
    feeder.ready()
    moved = {"lesson.list": "x", "race.again": "a,f7"}
    app = CbtuiApp(feeder.link, settings=Settings(keys=moved))

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            await pilot.press("escape", "l", "1")
            assert "x all lessons" in plain(app.screen.query_one(KeyBar).visible_lines()[0])
            await pilot.press("x")
            assert isinstance(app.screen, AskScreen)
            await pilot.press("escape", "r", "enter")
            bar = app.screen.query_one(KeyBar)
            assert "a again" in plain(bar.visible_lines()[0])
            screen = app.screen
            assert isinstance(screen, RaceScreen)
            guest = screen.guest
            await pilot.press("a")
            assert screen.guest is not guest

    asyncio.run(run())


# -- to keep ---------------------------------------------------------------------------------------


def answer(app: CbtuiApp) -> str:
    return str(app.main.query_one("#prompt").border_title)


def test_the_screen_is_saved_and_it_is_said_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "p", "p")
        await pilot.pause()
        assert "saved" in answer(app) and "cbtui-step-3-2.svg" in answer(app)
        assert (tmp_path / "cbtui-step-3.svg").read_text("utf-8").startswith("<svg")

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbtui.app.picture_path", lambda folder, step: tmp_path / "none" / "x.svg")

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "p")
        await pilot.pause()
        assert "no picture" in answer(app) and "cannot be written" in answer(app)

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script)


def test_free_names(tmp_path: Path) -> None:
    assert picture_path(tmp_path, 7).name == "cbtui-step-7.svg"
    (tmp_path / "cbtui-step-7.svg").touch()
    assert picture_path(tmp_path, 7).name == "cbtui-step-7-2.svg"


def test_y_copies_the_selected_requests_output() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "y")
        assert "select a request first" in answer(app)
        await pilot.press("down", "y")
        await pilot.pause()
        assert app.clipboard == output(app)
        assert f"A's output is in the clipboard, {len(app.clipboard)} characters" in answer(app)
        # In front of the main screen, too, and there as of the step that is shown.
        await pilot.press("enter", "left_square_bracket", "left_square_bracket", "y")
        await pilot.pause()
        assert app.clipboard == output(app)[: len(app.clipboard)] and len(app.clipboard) < len(output(app))
        assert over(app) == f"A's output is in the clipboard, {len(app.clipboard)} characters" + MAYBE

    def output(app: CbtuiApp) -> str:
        return app.main.follower.ledger.output_text(app.main.follower.ledger["r0"])

    feeder = Feeder()
    feeder.play(traced_records("trace-continuous.jsonl"), upto=5)
    drive(feeder, script)


def over(app: CbtuiApp) -> str:
    """What is said over the screen in front."""
    return [notification.message for notification in app._notifications][-1]


@pytest.mark.parametrize("keys", [("r", "enter"), ("l", "1"), ("k",), ("down", "enter")])
def test_a_picture_of_what_stands_in_front_says_there_where_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", *keys, "p")
        assert app.screen is not app.main
        (path,) = tmp_path.iterdir()
        assert over(app) == f"saved {path}" and path.read_text("utf-8").startswith("<svg")

    feeder = Feeder()
    feeder.play(fake_records(), upto=3)
    drive(feeder, script)


def test_a_command_found_in_the_palette_is_done() -> None:
    feeder = Feeder()
    feeder.play(fake_records(), upto=3)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "ctrl+p", *"one step, then")
        for _ in range(100):  # the palette searches in a task of its own
            await pilot.press("enter")
            await pilot.pause()
            if app.screen is app.main:
                break
        assert feeder.commands == [Step()]

    drive(feeder, script)
