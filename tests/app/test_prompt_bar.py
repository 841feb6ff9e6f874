"""The prompt: sending, pasting, history, and everything that is said beside it."""

from __future__ import annotations

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.options import LaunchOptions
from cbtui.screens.confirm import AskScreen
from cbtui.telling.first_prompts import BEGINNINGS, QUESTIONS
from cbtui.widgets.prompt_bar import MaxTokensInput, PromptBar, max_tokens_of
from engine.config import EngineConfig
from engine.live.commands import PromptRequest, Submit
from engine.live.state import Rejection
from tests.app.replay import MODEL, Feeder, drive


def empty(**changes: object) -> Feeder:
    feeder = Feeder()
    feeder.ready(**changes)
    return feeder


def submitted(feeder: Feeder) -> list[PromptRequest]:
    return [request for command in feeder.commands for request in command.requests]  # type: ignore[union-attr]


def bar_of(app: CbtuiApp) -> PromptBar:
    return app.main.query_one(PromptBar)


async def paste(app: CbtuiApp, pilot: Pilot[None], text: str) -> None:
    app.post_message(events.Paste(text))
    await pilot.pause()


def test_enter_submits_with_the_max_tokens_beside_it_and_clears_the_line() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "i", "tab", "7", "enter")
        assert bar_of(app).line.value == ""
        assert submitted(feeder) == [PromptRequest(prompt="Hi", max_tokens=7, chat=True)]
        await pilot.press("s", "o")
        assert bar_of(app).line.value == "so", "the next prompt was taken for single keys"

    drive(feeder, script)


def test_raw_prompts_go_as_they_stand() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("space", "H", "i", "space", "enter")
        assert submitted(feeder) == [PromptRequest(prompt=" Hi ", max_tokens=9)]

    drive(feeder, script, options=LaunchOptions(raw=True, max_tokens=9))


def test_a_model_without_a_template_takes_raw_prompts_and_says_so() -> None:
    feeder = empty(model=msgspec.structs.replace(MODEL, has_chat_template=False))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "enter")
        assert [request.chat for request in submitted(feeder)] == [False]
        await pilot.press("escape", "c")
        assert "no chat template" in bar_of(app).notice

    drive(feeder, script)


def test_prompts_typed_while_the_model_loads_are_submitted_at_once() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "enter")
        assert len(submitted(feeder)) == 1

    drive(feeder, script)


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_prompt_is_refused_in_words(text: str) -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar = bar_of(app)
        bar.line.put(text)
        await pilot.press("enter")
        assert "empty" in bar.notice and bar.has_class("-error")
        assert feeder.commands == [] and bar.line.value == text

    drive(feeder, script)


@pytest.mark.parametrize("wrong", ["abc", "0", "2048", "-3", "1.5", "", "٣"])
def test_a_bad_max_tokens_is_said_at_once_and_nothing_is_sent(wrong: str) -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar = bar_of(app)
        await pilot.press("H", "i")
        bar.max_field.value = wrong
        await pilot.pause()
        assert "max tokens must be a whole number from 1 to 2,047" in bar.notice
        await pilot.press("enter")
        assert feeder.commands == [] and bar.line.value == "Hi"
        bar.max_field.value = "12"
        await pilot.pause()
        assert bar.notice == ""

    drive(feeder, script)


def test_the_most_tokens_follow_the_engines_limits() -> None:
    assert max_tokens_of("1,024", 2047) == 1024
    feeder = empty(config=EngineConfig(max_model_len=100))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar_of(app).max_field.value = "100"
        await pilot.pause()
        assert "from 1 to 99" in bar_of(app).notice

    drive(feeder, script)


def test_arrows_bring_earlier_prompts_back_and_keep_what_was_being_typed() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        line = bar_of(app).line
        await pilot.press("a", "enter", "b", "enter", "c")
        seen = []
        for key in ("up", "up", "down", "down"):
            await pilot.press(key)
            seen.append(line.value)
        assert seen == ["b", "a", "b", "c"]

    drive(empty(), script)


def test_before_the_earlier_prompts_stand_examples_that_suit_the_way_prompts_are_sent() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        line = bar_of(app).line
        await pilot.press("up")
        assert line.value == QUESTIONS[0]
        await pilot.press(*["up"] * 9)
        assert line.value == QUESTIONS[-1]
        await pilot.press("enter", "up")
        assert line.value == QUESTIONS[-1]
        await pilot.press("up")
        assert line.value == QUESTIONS[0]
        await pilot.press("escape", "c", "slash", "ctrl+u", "up", "up")
        assert line.value == BEGINNINGS[0] and "continued" in line.placeholder

    drive(empty(), script)


def test_a_prompt_that_looks_meant_for_the_other_way_to_send_it_is_told_once() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        said = []
        for text in (QUESTIONS[0], BEGINNINGS[0], BEGINNINGS[1]):
            bar_of(app).line.put(text)
            await pilot.press("enter")
            said.append(bar_of(app).notice)
        assert [bool(words) for words in said] == [False, True, False] and "Esc c" in said[1]

    drive(empty(), script)


def test_one_pasted_line_is_inserted_whatever_line_breaks_surround_it() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("x", "y", "left")
        await paste(app, pilot, "\r\n one line\r\n")
        assert bar_of(app).line.value == "x one liney"

    drive(empty(), script)


def test_pasted_lines_become_that_many_prompts_submitted_together() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await paste(app, pilot, "one\ntwo\n\n[three]\n")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("enter")
        (command,) = feeder.commands
        assert isinstance(command, Submit)
        assert [request.prompt for request in command.requests] == ["one", "two", "[three]"]

    drive(feeder, script)


def test_or_one_prompt_with_line_breaks_to_be_looked_at_first() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("T", "o", "colon")
        await paste(app, pilot, "one\n\ntwo")
        await pilot.press("o")
        assert bar_of(app).line.value == "To:one\n\ntwo"
        assert feeder.commands == []
        await pilot.press("enter")
        assert [request.prompt for request in submitted(feeder)] == ["To:one\n\ntwo"]

    drive(feeder, script)


def test_lines_that_could_not_be_sent_stay_in_the_prompt() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar_of(app).max_field.value = "none"
        await paste(app, pilot, "one\ntwo")
        await pilot.press("enter")
        assert feeder.commands == []
        assert bar_of(app).line.value == "one\ntwo"

    drive(feeder, script)


def test_a_paste_that_is_not_wanted_changes_nothing() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("a")
        await paste(app, pilot, "one\ntwo")
        await pilot.press("escape")
        assert bar_of(app).line.value == "a" and feeder.commands == []

    drive(feeder, script)


def test_a_refusal_is_said_once_beside_the_input_and_the_text_comes_back() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        bar = bar_of(app)
        await pilot.press("H", "i", "enter")
        feeder.ready(rejection=Rejection(1, "the prompt has 3,000 tokens"))
        app.main.look()
        await pilot.pause()
        assert bar.notice == "the prompt has 3,000 tokens" and bar.line.value == "Hi"
        await pilot.press("exclamation_mark")
        assert bar.notice == ""
        feeder.ready(rejection=Rejection(1, "the prompt has 3,000 tokens"))
        app.main.look()
        await pilot.pause()
        assert bar.notice == ""

    drive(feeder, script)


def test_a_refusal_never_writes_over_what_is_being_typed() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("H", "i", "enter", "n", "e", "w")
        feeder.ready(rejection=Rejection(1, "no"))
        app.main.look()
        await pilot.pause()
        assert bar_of(app).line.value == "new"

    drive(feeder, script)


def test_tab_goes_to_max_tokens_and_escape_leaves_it() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("tab")
        assert isinstance(app.focused, MaxTokensInput)
        await pilot.press("escape")
        assert app.focused is app.main.query_one("#slots")

    drive(empty(), script)


def test_brackets_are_text_not_markup() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.say("[bold]not markup[/bold] [")
        bar_of(app).line.put("[red]a[/] [")
        await pilot.pause()
        assert bar_of(app).line.value == "[red]a[/] ["

    drive(empty(), script)


def test_a_click_on_the_chat_chip_switches() -> None:
    feeder = empty()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.click("#chat-chip")
        assert not app.main.wants_chat

    drive(feeder, script)
