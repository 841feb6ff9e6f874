"""The timeline picture: well-formed, self-contained, and every bar where the records say."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from made_runs import TRACES, crowded_run, hostile_run, recorded

from cbtui.export.run import RecordedRun
from cbtui.export.timeline_svg import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def bars(run: RecordedRun) -> list[tuple[str, str]]:
    """(what a bar says of itself, its class) of every bar."""
    root = ElementTree.fromstring(timeline_svg(run))
    found = []
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None
        found.append((title.text or "", rect.get("class", "")))
    return found


@pytest.mark.parametrize("mode", TRACES)
def test_a_bar_a_stretch(mode: str) -> None:
    run = recorded(mode)
    stretches = run.stretches()
    assert len(bars(run)) == len(stretches)
    for (words, style), stretch in zip(bars(run), stretches, strict=True):
        assert words.startswith(
            f"{run.badge(stretch.request_id).letter} {stretch.kind}, slot {stretch.slot}, "
        )
        assert stretch.kind in style.split()


def test_bars_of_a_slot_stand_side_by_side() -> None:
    run = crowded_run()
    root = ElementTree.fromstring(timeline_svg(run))
    ends: dict[str, float] = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, width = float(rect.get("x", "")), float(rect.get("width", ""))
        assert x >= ends.get(rect.get("y", ""), 0.0) - 0.02
        ends[rect.get("y", "")] = x + width


def test_texts_are_texts_and_nothing_is_loaded() -> None:
    text = timeline_svg(hostile_run())
    root = ElementTree.fromstring(text)
    assert not [e for e in root.iter() if e.tag not in {SVG + t for t in TAGS}]
    assert not [name for e in root.iter() for name, _ in e.items() if name.startswith("on") or "href" in name]
    assert "&lt;script&gt;window.pwned" in text
    assert text.count("http") == 1  # the name space
    assert not any(character in text for character in "\x1b\x07\x9b\u202e\u2066\x00\ufffe")


TAGS = ("svg", "title", "style", "defs", "pattern", "rect", "text", "g", "line")
