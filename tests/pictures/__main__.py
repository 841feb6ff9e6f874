"""Takes the README's pictures anew, from real runs of the default model: `make pictures`.

    python -m tests.pictures [screens] [page] [tour]

Needs a browser on PATH to paint with, and Pillow for the animation. Times in the pictures are those of the
machine: take them while it does nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from cbtui.export.page import page
from cbtui.export.run import recorded_run
from cbtui.options import LaunchOptions, runner_spec
from engine.config import EngineConfig
from engine.stream.trace_files import read_trace
from tests.browser.chromium import Browser
from tests.pictures.painting import animation, painted
from tests.pictures.taking import Screen, screen

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".github"
LARGE, MEDIUM = (160, 50), (120, 37)
#: GitHub shows a README about 900 pixels wide; these are sharp on a screen of twice the density.
WIDE, NARROW = 1600, 1000
#: What is typed for the animation, and how many tokens each may make.
TYPED = (
    ("The capital of France is", 6),
    ("Today's weather is so", 26),
    ("In machine learning, a transformer is", 30),
    ("Once upon a time in a land far away,", 14),
)
Frames = list[tuple[str, int]]


def options(**changes: object) -> LaunchOptions:
    return LaunchOptions(runner=runner_spec(threads=1), raw=True, **changes)  # type: ignore[arg-type]


async def screens() -> dict[str, str]:
    """The tutorial's six requests: continuous at step 7, static at step 23, and the result of both."""
    taken = {}
    static = EngineConfig(mode="static")
    async with screen(options(paused=True, demo=True, speed=None, config=static), LARGE) as one:
        await one.until(lambda: one.waiting == 6)
        for _ in range(23):
            await one.one_step()
        taken["static-23"] = one.picture()
    async with screen(options(paused=True, demo=True, speed=None), LARGE) as one:
        await one.until(lambda: one.waiting == 6)
        for _ in range(7):
            await one.one_step()
        taken["step-7"] = one.picture()
        await to_the_end(one)
        await one.press("f6", "escape", "d", "d")
        await one.until(lambda: one.step > 300 and one.status == "idle")
        taken["result"] = one.picture()
    return taken


async def to_the_end(one: Screen) -> None:
    await one.press("f5")
    await one.until(lambda: one.status == "idle")


async def tour() -> Frames:
    """Prompts typed, prefilled side by side, a slot refilled at once; the same in static mode; the result."""
    frames: Frames = []
    async with screen(options(paused=True, speed=12.0), MEDIUM) as one:

        def take(ms: int) -> None:
            frames.append((one.picture(), ms))

        async def submit(place: int, *, slowly: bool) -> None:
            text, most = TYPED[place]
            await one.press("escape", "slash")
            for start in range(0, len(text), 4):
                await one.type(text[start : start + 4])
                if slowly:
                    take(70)
            await one.press("tab")
            await one.press(*["backspace"] * 4, *str(most))
            take(200)
            await one.press("enter")
            await one.until(lambda: True)
            take(300 if slowly else 160)

        async def run_on() -> None:
            await one.press("f5")
            while one.status != "idle":
                await one.next_step_or_idle()
                take(90)

        take(700)
        for place in range(len(TYPED)):
            await submit(place, slowly=True)
        await one.one_step()
        take(1500)
        for _ in range(5):
            await one.one_step()
            take(200)
        await one.one_step()
        take(2100)
        await run_on()
        take(800)
        await one.press("f6", "f5")
        take(500)
        for place in range(len(TYPED)):
            await submit(place, slowly=False)
        for _ in range(7):
            await one.one_step()
            take(180)
        take(1900)
        await run_on()
        take(3200)
    return frames


def page_picture(browser: Browser, folder: Path) -> bytes:
    """The exported page of a recorded run, at the step where a slot is refilled."""
    trace = read_trace(ROOT / "tests" / "data" / "trace-continuous.jsonl")
    path = folder / "run.html"
    path.write_text(page(recorded_run(trace.header, trace.records)), "utf-8")
    browser.send(
        "Emulation.setDeviceMetricsOverride", width=1280, height=960, deviceScaleFactor=1.25, mobile=False
    )
    browser.open(path.as_uri() + "#step=7")
    browser.wait_for("document.body && document.body.dataset.ready === 'yes'")
    return browser.png()


def main(wanted: set[str]) -> None:
    with Browser() as browser, TemporaryDirectory() as folder:
        if "page" in wanted:
            write("page.png", page_picture(browser, Path(folder)))
        if "screens" in wanted:
            for name, svg in asyncio.run(screens()).items():
                write(f"{name}.png", painted(browser, svg, WIDE))
        if "tour" in wanted:
            frames = [(painted(browser, svg, NARROW), ms) for svg, ms in asyncio.run(tour())]
            animation(frames, PICTURES / "tour.gif")
            seconds = sum(ms for _, ms in frames) / 1000
            size = (PICTURES / "tour.gif").stat().st_size
            print(f"tour.gif: {len(frames)} frames, {seconds:.1f} s, {size:,} bytes")


def write(name: str, data: bytes) -> None:
    (PICTURES / name).write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


if __name__ == "__main__":
    main(set(sys.argv[1:]) or {"screens", "page", "tour"})
