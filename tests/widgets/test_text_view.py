"""The whole text of a request: harmless, complete, and a template's tokens apart."""

from __future__ import annotations

import asyncio

from textual.app import App
from textual.style import Style

from cbtui.telling.request_text import prompt_parts
from cbtui.widgets.text_view import TextView, facts, harmless, whole_text
from tests.widgets.stage import Stage

DIM, STRONG = Style(dim=True), Style(bold=True)


def test_a_raw_prompt_is_followed_by_its_whole_output() -> None:
    stage = Stage().tutorial().step(60)
    content = whole_text(stage.frame(), "r2", DIM, STRONG)
    assert content.plain == "In machine learning, a transformer is" + stage.ledger.decode(
        stage.ledger["r2"].outputs_at(60)
    )


def test_looking_back_ends_at_that_step() -> None:
    stage = Stage().tutorial().step(60)
    assert "6/300 tokens so far, in slot 2" in facts(stage.frame(step=6), "r2")
    assert "length 6/6 · waited 0, ran 6 steps · prompt 5 tokens" in facts(stage.frame(), "r0")
    assert "waiting" in facts(stage.frame(step=6), "r3")


def test_template_tokens_are_counted_and_styled_apart() -> None:
    stage = Stage(slots=1)
    (one,) = stage.submit(("<system> hello there <assistant>", 3), template=2, typed="hello there")
    stage.step()
    parts = prompt_parts(stage.ledger, stage.ledger[one])
    assert (parts.before, parts.own, parts.after) == ("<system> ", "hello there", " <assistant>")
    assert parts.count == "4 = 2 template + 2 yours"
    content = whole_text(stage.frame(), one, DIM, STRONG)
    assert [(content.plain[s.start : s.end], s.style) for s in content.spans] == [
        ("<system> ", DIM),
        ("hello there", STRONG),
        (" <assistant>", DIM),
    ]


def test_control_characters_and_markup_do_nothing() -> None:
    assert harmless("a\r\nb\x1b[2J [red]\n\tc") == "a\nb␛[2J [red]\n⇥c"


def test_it_opens_over_a_screen_and_closes_with_escape() -> None:
    stage = Stage().tutorial().step(7)

    async def play() -> None:
        app: App[None] = App()
        async with app.run_test(size=(80, 24)) as pilot:
            view = TextView(stage.frame(), "r1")
            await app.push_screen(view)
            await pilot.pause()
            whole = view.query_one(".text-whole")
            assert str(whole.render()).startswith("Today's weather is so")  # type: ignore[attr-defined]
            view.show(stage.step(3).frame())
            await pilot.press("escape")
            assert app.screen is not view

    asyncio.run(play())
