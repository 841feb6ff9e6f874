"""Pictures of the recording that plays while the model loads. Its trace is package data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from engine.live.state import EngineState
from engine.runner import Loading
from tests.app.replay import Feeder

Picture = Callable[..., bool]


async def playing(pilot: Pilot[None]) -> None:
    """In its seventh step, where a prefill rides beside decodes."""
    app = pilot.app
    assert isinstance(app, CbtuiApp)
    await pilot.pause()
    app.main.begin_welcome()
    if app.main._welcome_timer is not None:
        app.main._welcome_timer.stop()
    for _ in range(6):
        app.main.advance_welcome()
    await pilot.pause()


@pytest.mark.parametrize("size", [(160, 50), (120, 40), (80, 24)])
def test_welcome(snap_compare: Picture, size: tuple[int, int]) -> None:
    feeder = Feeder()
    loading = Loading("fetching model", 41_000_000, 93_000_000, "bytes", "convert (about 15 s, once)")
    feeder.publish(EngineState(loading=loading))
    assert snap_compare(CbtuiApp(feeder.link), terminal_size=size, run_before=playing)
