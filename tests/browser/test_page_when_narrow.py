"""The exported page in a narrow window, and of a server: nothing sticks out, and no word of it is cut."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from chromium import Browser
from made_runs import recorded
from test_page_in_browser import Page

from cbtui.export.run import RecordedRun, recorded_run
from engine.attach.recordings import read_recording
from engine.config import EngineConfig
from engine.runner import ModelInfo
from engine.stream.records import Provenance
from engine.stream.trace_files import header_of

VLLM = Path(__file__).parent.parent / "data" / "attach" / "vllm-pressed.jsonl"
#: Of a server that has no pool of blocks and tells no budget.
BARE = Provenance(engine="a server", inferred=(("mask", "x"),), absent=(("kv", "x"), ("budget", "x")))


def runs() -> dict[str, RecordedRun]:
    vllm, own = read_recording(VLLM), recorded("static")
    model = ModelInfo(name="m", source="m", device="", dtype="")
    bare = [
        msgspec.structs.replace(step, num_blocks=0, free_blocks=0, max_num_batched_tokens=0)
        for step in recorded("continuous").steps
    ]
    return {
        "own": own,
        "vllm": recorded_run(vllm.header, vllm.records),
        "bare": recorded_run(header_of(model, EngineConfig(), BARE), bare),
    }


@pytest.mark.parametrize("name", ["own", "vllm", "bare"])
@pytest.mark.parametrize("width", [360, 500, 900])
def test_a_narrow_window_scrolls_down_and_not_sideways(tmp_path: Path, name: str, width: int) -> None:
    with Browser(width=width) as browser:
        page = Page(browser, runs()[name], tmp_path)
        inner, wide = browser.js(
            "[document.documentElement.clientWidth, document.documentElement.scrollWidth]"
        )
        assert wide <= inner
        for line in ("under-mask", "under-timeline"):
            box = f"document.getElementById('{line}')"
            assert browser.js(f"{box}.scrollWidth <= {box}.clientWidth"), page.text(line)


def test_what_a_server_does_not_tell_is_not_drawn_and_a_derived_mask_is_said_to_be_one(
    tmp_path: Path,
) -> None:
    with Browser() as browser:
        page = Page(browser, runs()["bare"], tmp_path)
        assert "derived from lengths" in page.text("mask-size")
        assert "KV" not in page.text("under-timeline") and "budget" not in page.text("row-size")
        page = Page(browser, runs()["own"], tmp_path)
        assert "derived" not in page.text("mask-size") and "KV blocks" in page.text("under-timeline")
