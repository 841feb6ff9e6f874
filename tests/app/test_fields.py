"""What can be typed into the fields of the screens: a number, or a sentence about why it is none."""

from __future__ import annotations

import pytest
from replay import Feeder, drive
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.options import LaunchOptions, risks, runner_spec
from cbtui.screens.ask_number import AskNumberScreen
from cbtui.screens.load import spec_of, written
from cbtui.settings_form import SETTINGS, SettingsForm
from cbtui.widgets.prompt_bar import max_tokens_of
from engine.config import ConfigError
from engine.live.load import LoadError, LoadSpec
from engine.live.state import EngineState

NO_NUMBERS = ("", " ", "0", "-1", "nan", "inf", "x", "1e400", "1.5.5", "²", "9" * 5000, "\x00", "\ud800", "½")


@pytest.mark.parametrize("text", [*NO_NUMBERS, "1.5", "10,000,000", "٣"], ids=ascii)
def test_max_tokens(text: str) -> None:
    with pytest.raises(ValueError, match="max tokens must be a whole number from 1 to 2,000"):
        max_tokens_of(text[:7], 2000)


@pytest.mark.parametrize("field", ["rate", "prompt", "output", "seed"])
@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: ascii(text)[:20])
def test_a_load(field: str, text: str) -> None:
    if field == "seed" and text in ("0",):
        return
    with pytest.raises(LoadError) as caught:
        spec_of(written(LoadSpec()) | {field: text})
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("name", ["budget", "slots", "speed"])
@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: ascii(text)[:20])
def test_live_settings(name: str, text: str) -> None:
    form = SettingsForm(EngineState())
    form.select([setting.name for setting in SETTINGS].index(name))
    form.wanted[name] = text
    with pytest.raises(ConfigError):
        form.commands(EngineState())


def test_a_question_for_a_number_takes_no_more_than_one_can_mean() -> None:
    answers: list[int | None] = []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.push_screen(AskNumberScreen("Steps", "How many?", most=100), answers.append)
        await pilot.pause()
        await pilot.press(*"9" * 40, "enter")
        assert not answers, "too many is said, not taken"
        await pilot.press("home", *["delete"] * 40, "enter", "7", "enter")
        assert answers == [7]

    feeder = Feeder()
    feeder.ready()
    drive(feeder, script)


def test_what_lets_a_model_do_more_than_compute_is_said_on_the_screen() -> None:
    runner = runner_spec("folder", allow_pickle=True, trust_remote_code=True)
    assert [risk.split(":")[0] for risk in risks(runner)] == ["--allow-pickle", "--trust-remote-code"]
    assert risks(runner_spec("folder")) == []

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert {one.message for one in app._notifications} == set(risks(runner))

    feeder = Feeder()
    feeder.ready()
    drive(feeder, script, options=LaunchOptions(runner=runner))
