"""Strange texts and large numbers at every size: nothing breaks, nothing leaves its cells."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.widgets.lines import LinesView
from engine.clock import EngineClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.request import SamplingParams
from engine.session import drain
from engine.stream.records import Record
from tests.app.replay import Feeder, drive

SIZES = [(200, 60), (160, 50), (120, 40), (80, 24), (60, 18), (40, 15)]
STRANGE = (
    "日本語のテキストと漢字",
    "🙂👍🏽👨‍👩‍👧 emoji 🇳🇿",
    "שלום עולם مرحبا",
    "\x1b[2J\x07\t\n\r\x7f control \u202e\u2066",
    "[bold]markup[/] [link=x]@click=app.quit[/link] [",
    "e\u0301\u0301\u0301 combining \u0301",
    "\ufffd\ufeff\u200d\u00ad",
    "long " * 800,
)


def records_of(
    prompts: list[str], mode: str = "continuous", slots: int = 8, steps: int = 4, budget: int = 8192
) -> list[Record]:
    """Records of the first steps on the fake runner, a token a byte: every character is cut in pieces."""
    runner = FakeRunner()
    runner.start()
    ticks = iter(range(1_000_000))
    config = EngineConfig(
        mode=mode, max_num_seqs=slots, max_num_batched_tokens=budget, max_model_len=8192, num_blocks=4096
    )
    engine = Engine(
        config,
        runner,
        runner.info,
        clock=EngineClock(lambda: next(ticks) / 50),
        token_bytes=fake_token_bytes,
        n_top=5,
    )
    for text in prompts:
        engine.add_request(list(text.encode()), SamplingParams(max_tokens=9), prompt_text=text)
    return list(islice(drain(engine), steps))


def stays_in_its_cells(app: CbtuiApp) -> None:
    """Every line of every shown panel is as wide as its panel, control characters and all."""
    for panel in app.screen.query(LinesView):
        if not panel.display or not panel.size.area:
            continue
        for y in range(panel.size.height):
            strip = panel.render_line(y)
            assert strip.cell_length == panel.scrollable_content_region.width
            assert not any(ord(c) < 32 or c in "\x7f\u202e\u2066\u200d" for c in strip.text)


async def looks_at_everything(app: CbtuiApp, pilot: Pilot[None]) -> None:
    """Every tab, every scale of the mask, the cursors, another theme."""
    stays_in_its_cells(app)
    await pilot.press("escape")
    for key in ("2", "z", "z", "z", "z", "Z", "3", "4", "5", "1"):
        await pilot.press(key)
        stays_in_its_cells(app)
    for name in ("row", "mask"):
        panel = app.main.query_one(f"#{name}", LinesView)
        if panel.display and panel.size.area:
            panel.focus()
            await pilot.press("right", "down", "left", "end", "pagedown", "shift+right", "up")
            stays_in_its_cells(app)
    app.use_theme("light")
    await pilot.pause()
    stays_in_its_cells(app)


@pytest.mark.parametrize(
    ("size", "mode"), [*((size, "continuous") for size in SIZES), ((160, 50), "static"), ((80, 24), "static")]
)
def test_strange_texts_at_every_size(size: tuple[int, int], mode: str) -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        if size >= (60, 18):
            await looks_at_everything(app, pilot)

    for steps in (1, 3):
        feeder = Feeder()
        feeder.play(records_of(list(STRANGE), mode, steps=steps))
        drive(feeder, script, size=size)


@pytest.mark.parametrize("size", SIZES[:4])
def test_64_slots_and_500_waiting(size: tuple[int, int]) -> None:
    feeder = Feeder()
    feeder.play(records_of([f"prompt {n} {STRANGE[n % 7]}" for n in range(564)], slots=64, steps=3))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await looks_at_everything(app, pilot)
        for step in ((100, 34), (60, 18), size):
            await pilot.resize_terminal(*step)
            await pilot.pause()
            stays_in_its_cells(app)

    drive(feeder, script, size=size)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=6), st.sampled_from(SIZES[:5]))
def test_any_text_draws(prompts: list[str], size: tuple[int, int]) -> None:
    feeder = Feeder()
    feeder.play(records_of([text.encode(errors="ignore").decode() or "?" for text in prompts], steps=2))
    app = CbtuiApp(feeder.link)

    async def body() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            stays_in_its_cells(app)

    asyncio.run(body())


def test_no_color_keeps_letters_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual turns colours to greys then; what is said in letters and shapes is the same text."""
    texts = []
    for value in (None, "1"):
        if value:
            monkeypatch.setenv("NO_COLOR", value)
        feeder = Feeder()
        feeder.play(records_of(["one", "two"], steps=2))

        async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
            texts.append(
                [p.render_line(y).text for p in app.main.query(LinesView) for y in range(p.size.height)]
            )

        drive(feeder, script)
    assert texts[0] == texts[1]
