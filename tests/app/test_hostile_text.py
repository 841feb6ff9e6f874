"""Prompts, outputs, names and messages are data: nothing of theirs reaches the terminal as an order."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay import MODEL, Feeder, drive, state_after
from test_app_strange import records_of
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.harmless import harmless, harmless_json
from cbtui.looks.tokens import cell_width, prose, visible
from cbtui.widgets.prompt_bar import PromptBar
from engine.live.state import Failure, Rejection
from engine.runner import Loading
from engine.stream.records import Record, StepRecord
from tests.hostile import HOSTILE, hostile_text, orders


def drawn(app: CbtuiApp) -> str:
    """All that the screen in front would write, styles apart; lines end in the only breaks there are."""
    lines = []
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            assert not segment.control and (segment.style is None or segment.style.link is None)
        lines.append(strip.text)
    return "\n".join(lines)


def nothing_is_an_order(app: CbtuiApp) -> None:
    width = app.size.width
    for line in drawn(app).split("\n"):
        assert not orders(line), f"{orders(line)!r} in {line!r}"
        assert cell_width(line) == width


def hostile_records(texts: tuple[str, ...]) -> list[Record]:
    """A run in which prompts, labels, tokens and causes are hostile."""
    changed: list[Record] = []
    for record in records_of(list(texts), steps=4):
        plain = msgspec.to_builtins(record)
        for number, request in enumerate(plain["events"]["submitted"]):
            request["label"] = texts[number % len(texts)]
        plain["events"]["tokens"] = [
            (token, texts[number % len(texts)].encode("utf-8", "replace"))
            for number, (token, _) in enumerate(plain["events"]["tokens"])
        ]
        plain["events"]["errors"] = list(texts)
        for finish in plain["events"]["finished"]:
            finish["reason"], finish["error"] = "error", texts[0]
        changed.append(msgspec.convert(plain, type(record), strict=False))
    return changed


KEYS = "escape 2 3 4 5 1 z k escape question_mark escape o escape g escape down enter tab escape".split()


@pytest.mark.parametrize("size", [(160, 50), pytest.param((80, 24), marks=pytest.mark.long)])
def test_no_screen_passes_on_what_a_run_brings(size: tuple[int, int]) -> None:
    records = hostile_records(HOSTILE)
    feeder = Feeder()
    feeder.play(records)
    last = next(record for record in reversed(records) if isinstance(record, StepRecord))
    model = msgspec.structs.replace(MODEL, name="".join(HOSTILE[:6]))
    rejection = Rejection(1, "".join(HOSTILE))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        nothing_is_an_order(app)
        for key in KEYS:
            await pilot.press(key)
            nothing_is_an_order(app)
        feeder.publish(state_after(last, model=model, rejection=rejection))
        app.main.look()
        await pilot.pause()
        nothing_is_an_order(app)
        app.notify("".join(HOSTILE), markup=False)
        app.main.query_one(PromptBar).say("".join(HOSTILE), is_error=True)
        await pilot.pause()
        nothing_is_an_order(app)
        await pilot.press("d", "d")
        nothing_is_an_order(app)

    drive(feeder, script, size=size)


@pytest.mark.parametrize("text", ["".join(HOSTILE)])
def test_causes_and_stages_are_shown_harmless(text: str) -> None:
    feeder = Feeder()
    feeder.ready(status="failed", failure=Failure(text, text, text), model=None)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        nothing_is_an_order(app)
        feeder.ready(status="loading", model=None, loading=Loading(text, 1, 2, "parts", text))
        app.main.look()
        await pilot.pause()
        nothing_is_an_order(app)

    drive(feeder, script)


@pytest.mark.parametrize("text", ["".join(HOSTILE[:7]), "".join(HOSTILE[7:])])
def test_what_is_pasted_is_shown_harmless_and_sent_as_it_is(text: str) -> None:
    from textual.events import Paste

    from engine.live.commands import Submit

    feeder = Feeder()
    feeder.ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.post_message(Paste(text))
        await pilot.pause()
        nothing_is_an_order(app)
        await pilot.press("enter")
        nothing_is_an_order(app)

    drive(feeder, script)
    sent = [command for command in feeder.commands if isinstance(command, Submit)]
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [one.prompt for command in sent for one in command.requests] == lines


@pytest.mark.long
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(hostile_text, min_size=1, max_size=4), st.sampled_from([(160, 50), (120, 40), (80, 24)]))
def test_any_hostile_text_is_drawn_harmless(texts: list[str], size: tuple[int, int]) -> None:
    feeder = Feeder()
    feeder.play(hostile_records(tuple(texts)))
    app = CbtuiApp(feeder.link)

    async def body() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.press("escape", "down")
            nothing_is_an_order(app)
            await pilot.press("enter")
            nothing_is_an_order(app)

    asyncio.run(body())


@given(hostile_text)
def test_the_pure_parts_let_nothing_through(text: str) -> None:
    assert not orders(prose(text))
    assert not orders(visible(text.encode("utf-8", "replace")))
    assert not orders(harmless(text)) and cell_width(harmless(text)) == cell_width(text)
    data = msgspec.json.encode(text).decode()
    assert not orders(harmless_json(data)) and msgspec.json.decode(harmless_json(data)) == text
