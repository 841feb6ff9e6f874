"""What a step costs the terminal: only lines that differ are painted, and nothing is laid out again."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from cbtui.app import CbtuiApp
from tests.app.replay import Feeder, drive, traced_records


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
def test_a_plain_step_paints_no_panel_whole(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    records = traced_records("trace-continuous.jsonl")
    whole: Counter[str] = Counter()
    refresh = Widget.refresh

    def counted(widget: Widget, *regions: object, **how: object) -> Widget:
        if not regions or how.get("layout"):
            whole[f"{type(widget).__name__} {widget.id}"] += 1
        return refresh(widget, *regions, **how)  # type: ignore[arg-type]

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        await pilot.pause()
        monkeypatch.setattr(Widget, "refresh", counted)
        # Decodes alone, with a title that changes at every step.
        for record in records:
            if 13 <= record.step <= 17:
                feeder.play([record])
                app.main.look()
                await pilot.pause()
        assert not whole

    feeder = Feeder()
    feeder.play(records, upto=12)
    drive(feeder, script, size=size)
