"""The exported page in a real browser: at any step, the mask's cells and the timeline are the records'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from math import dist, floor
from pathlib import Path

import msgspec
import pytest
from chromium import Browser
from made_runs import HOSTILE, crowded_run, hostile_run, recorded

from cbtui.export.page import page
from cbtui.export.run import RecordedRun, recorded_run
from cbtui.looks.colours import mix, rgb, shape_colour
from cbtui.looks.theme import THEMES
from engine.step.mask import query_runs
from engine.stream.records import StepRecord

LIGHT = THEMES["light"]
GROUND, SURFACE, PANEL = LIGHT.background or "", LIGHT.surface or "", LIGHT.panel or ""
#: How far apart two colours (0-255 a channel) may be and still be the same, for the edges' sake.
NEAR = 26
#: The colours of a canvas at some places, as they look on the page.
PIXELS = """((name, places, ground) => {
  const canvas = document.getElementById(name), pen = canvas.getContext("2d");
  const { data, width } = pen.getImageData(0, 0, canvas.width, canvas.height);
  return places.map(([x, y]) => {
    const at = 4 * (y * width + x), alpha = data[at + 3] / 255;
    return [0, 1, 2].map((n) => data[at + n] * alpha + ground[n] * (1 - alpha));
  });
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


class Page:
    """An exported run, open in the browser."""

    def __init__(self, browser: Browser, run: RecordedRun, folder: Path, at: int | None = None) -> None:
        self.browser = browser
        self.run = run
        path = folder / "run.html"
        path.write_text(page(run), "utf-8")
        browser.open("about:blank")
        browser.complaints.clear()
        browser.requests.clear()
        browser.open(path.as_uri() + (f"#step={at}" if at else ""))
        browser.wait_for("document.body && document.body.dataset.ready === 'yes'")

    @property
    def step(self) -> StepRecord:
        """The shown step; every part of the page says the same."""
        number = int(self.browser.js("document.body.dataset.step"))
        for canvas in ("mask", "timeline"):
            assert int(self.browser.js(f"document.getElementById('{canvas}').dataset.step")) == number
        assert self.text("where").startswith(f"step {number} of ")
        return next(step for step in self.run.steps if step.step == number)

    def text(self, name: str) -> str:
        return self.browser.js(f"document.getElementById('{name}').innerText")

    def numbers(self, canvas: str, name: str) -> list[float]:
        return [
            float(n)
            for n in self.browser.js(f"document.getElementById('{canvas}').dataset.{name}").split(",")
        ]

    def corner(self, name: str) -> tuple[float, float]:
        """Where an element's left upper corner is in the window, once it has been scrolled to."""
        self.browser.js(f"document.getElementById('{name}').scrollIntoView({{block: 'center'}})")
        box = self.browser.js(f"document.getElementById('{name}').getBoundingClientRect().toJSON()")
        return box["x"], box["y"]

    def colours(self, canvas: str, places: list[tuple[int, int]]) -> list[list[float]]:
        return self.browser.js(f"{PIXELS}('{canvas}', {json.dumps(places)}, {list(rgb(SURFACE))})")

    def shade(self, request_id: str) -> str:
        return shape_colour(self.run.badge(request_id).colour, GROUND)

    def see_the_mask(self, window: int | None = None) -> None:
        """Every cell of the drawn mask is new, cached or blocked as the engine's own rule has it."""
        step = self.step
        (left, top), (wide, high) = self.numbers("mask", "origin"), self.numbers("mask", "cell")
        blocked = mix(SURFACE, PANEL, 0.55)
        cells = []
        for run in query_runs(step.segments, step.shape, window):
            query = run.row * step.shape[1] + run.column
            for key in range(step.num_keys):
                colour = blocked
                if run.start <= key < run.stop:
                    colour = self._seen(step, run.segment, key, blocked)
                cells.append((query, key, colour))
        places = [
            (floor(left + key * wide + 1.5), floor(top + query * high + 1.5)) for query, key, _ in cells
        ]
        for (query, key, wanted), found in zip(cells, self.colours("mask", places), strict=True):
            assert dist(found, rgb(wanted)) < NEAR, f"step {step.step}, query {query}, key {key}"

    def _seen(self, step: StepRecord, number: int | None, key: int, blocked: str) -> str:
        if number is None:
            return LIGHT.variables["border-blurred"]
        segment = step.segments[number]
        strength = 0.45 if segment.kind == "dead" else 1.0
        if key < segment.kv_start + segment.num_cached:
            strength *= 0.42
        return mix(blocked, self.shade(segment.request_id), strength)


def test_keys_go_to_a_step_and_its_mask_is_the_records(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, recorded("continuous"), tmp_path)
    assert page.step.step == 1
    page.see_the_mask()
    browser.press(*["ArrowRight"] * 6)
    assert page.step.step == 7
    page.see_the_mask()
    assert page.text("row-name") == "Packed row" and "[1, 12]" in page.text("row-size")
    assert "D entered it at once" in page.text("story")
    browser.press("End", "[")
    assert page.step.step == 47
    browser.press("}")
    assert page.step.step == 48
    browser.press("{")
    assert page.step.step == 29
    browser.press("Home", "}")
    assert page.step.step == 6 and not browser.complaints


def test_a_click_in_the_timeline_goes_there_and_the_timeline_is_the_records(
    browser: Browser, tmp_path: Path
) -> None:
    page = Page(browser, recorded("continuous"), tmp_path)
    x, y = page.corner("timeline")
    (left, top), (wide, high) = page.numbers("timeline", "origin"), page.numbers("timeline", "cell")
    browser.click(x + left + 20.5 * wide, y + top + high / 2)
    assert page.step.step == 21
    page.see_the_mask()
    places, expected = [], []
    for place, slot in product(range(len(page.run.steps)), range(page.run.num_slots)):
        step = page.run.steps[place]
        if step is page.step:
            continue  # lies under the mark of the shown step
        segment = next((one for one in step.segments if one.slot == slot), None)
        strength = {"prefill": 1.0, "decode": 0.62}
        colour = mix(PANEL, page.shade(segment.request_id), strength[segment.kind]) if segment else PANEL
        places.append((floor(left + (place + 0.9) * wide), floor(top + slot * high + 4)))
        expected.append(colour)
    for at, found, wanted in zip(places, page.colours("timeline", places), expected, strict=True):
        assert dist(found, rgb(wanted)) < NEAR, at


def test_rectangles_padding_and_dead_work(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, recorded("static"), tmp_path, at=1)
    page.see_the_mask()
    assert browser.js("document.querySelectorAll('#row .token.pad').length") == page.step.tokens.padding == 4
    browser.js("location.hash = '#step=30'")
    browser.wait_for("document.body.dataset.step === '30'")
    page.see_the_mask()
    assert (
        browser.js("document.querySelectorAll('#slots .slot.is-dead').length") == page.step.tokens.dead == 2
    )
    assert "wave not over" in page.text("waiting")


def test_steps_fed_again_after_a_preemption(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, crowded_run(), tmp_path)
    resumed = [step.step for step in page.run.steps if any(a.resumed for a in step.events.admitted)]
    for number in resumed[:2]:
        browser.js(f"location.hash = '#step={number}'")
        browser.wait_for(f"document.body.dataset.step === '{number}'")
        page.see_the_mask()
        assert "fed again" in page.text("story")


def test_the_masks_cursor_says_what_a_query_may_look_at(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, recorded("continuous"), tmp_path, at=7)
    browser.js("document.getElementById('mask').focus()")
    assert page.text("under-mask") == "C p12 ·that → C p12 ·that · may look: new in this step"
    browser.press("ArrowLeft")
    assert page.text("under-mask").endswith("may look: cached before this step")
    browser.press("ArrowUp")
    assert page.text("under-mask").startswith("B p10 ")
    assert page.text("under-mask").endswith("blocked: another request's")
    x, y = page.corner("mask")
    (left, top), (wide, high) = page.numbers("mask", "origin"), page.numbers("mask", "cell")
    browser.point(x + left + 4.5 * wide, y + top + 2.5 * high)
    assert page.text("under-mask") == "D p2 ·a → D p4 ·in · blocked: it lies in its future"


def test_layers_with_a_window_have_a_mask_of_their_own(browser: Browser, tmp_path: Path) -> None:
    run = recorded("continuous")
    header = msgspec.structs.replace(run.header, layer_windows=(None, 4, None, 4))
    page = Page(browser, recorded_run(header, run.records), tmp_path, at=7)
    page.see_the_mask()
    assert page.text("mask-size").endswith("no window: 2 of 4 layers")
    browser.press("w")
    page.see_the_mask(4)
    assert page.text("mask-size").endswith("window 4: 2 of 4 layers")
    browser.js("document.getElementById('mask').focus()")
    browser.press(*["ArrowLeft"] * 6)
    assert page.text("under-mask").endswith("blocked: behind this layer's window")
    browser.js("document.getElementById('layer').click()")
    page.see_the_mask()


def test_a_recording_of_another_server_says_what_is_not_its_own_word(
    browser: Browser, tmp_path: Path
) -> None:
    page = Page(browser, recorded("vllm-pressed"), tmp_path)
    known = page.run.header.provenance
    assert known is not None and known.engine in page.text("about")
    told = browser.js("[...document.querySelectorAll('#unsure li')].map((one) => one.textContent)")
    assert len(told) == len(known.inferred) + len(known.absent) > 0
    for step in page.run.steps[1:6]:
        browser.press("ArrowRight")
        assert page.step is step
        page.see_the_mask()
    assert not browser.complaints


def test_zoom_and_every_cell_keep_the_mask_right(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, recorded("static"), tmp_path, at=20)
    browser.press("z")
    page.see_the_mask()
    before = page.numbers("timeline", "cell")[0]
    browser.press("t")
    assert page.numbers("timeline", "cell")[0] > before
    browser.press("z", "t")


def test_a_row_of_the_requests_goes_to_its_first_step(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, recorded("continuous"), tmp_path)
    browser.js("document.querySelectorAll('#requests tbody tr')[4].click()")
    story = page.run.stories[4]
    assert page.step.step == story.first_step
    assert story.request.prompt_text in page.text("requests")


def test_no_text_of_the_run_gets_out(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, hostile_run(), tmp_path)
    tags = "[...document.body.querySelectorAll('*')].map((e) => e.tagName)"
    before = set(browser.js(tags))
    for step in page.run.steps[1:]:
        browser.press("ArrowRight")
        assert page.step is step
    assert set(browser.js(tags)) <= before | {"BUTTON"}
    assert browser.js("window.pwned === undefined")
    assert browser.js("document.querySelectorAll('img, svg, iframe, object, a').length") == 0
    shown = browser.js("document.body.innerText + document.title")
    assert HOSTILE[0] in shown and "⟨U+202E⟩" in shown and "␛]0;title" in shown
    assert not any(character in shown for character in "\x1b\x07\x9b\u202e\u2066\x00\ufffe")
    assert browser.requests == [(tmp_path / "run.html").as_uri()] and not browser.complaints


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    def ground() -> str:
        return browser.js("getComputedStyle(document.body).backgroundColor")

    def of(theme: str) -> str:
        return "rgb({}, {}, {})".format(*rgb(THEMES[theme].background or ""))

    try:
        browser.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        Page(browser, recorded("continuous"), tmp_path)
        assert ground() == of("dark")
        browser.js("document.getElementById('theme').click()")
        assert ground() == of("light")
    finally:
        browser.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}]
        )
