"""Pictures of the race: under way and finished, at three sizes, on the fake runner's own clock, and on the
recorded steps of the default model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.following.link import Link
from cbtui.screens.race import RaceScreen
from tests.app.race_track import Track
from tests.app.replay import Feeder, traced_records

Picture = Callable[..., bool]


def raced(rounds: int, *keys: str) -> Callable[[Pilot[None]], object]:
    async def run(pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r", "enter")
        screen = pilot.app.screen
        assert isinstance(screen, RaceScreen)
        track = Track(screen.guest)
        track.rounds(rounds)
        screen.look()
        await pilot.press(*keys)
        await pilot.pause()

    return run


def app() -> CbtuiApp:
    feeder = Feeder()
    feeder.ready()
    return CbtuiApp(feeder.link)


@pytest.mark.parametrize("size", [(160, 50), (120, 40), (80, 24)])
def test_race_under_way(snap_compare: Picture, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=raced(120))


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
def test_race_finished(snap_compare: Picture, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=raced(1000))


def test_figures_of_a_race_at_80_by_24(snap_compare: Picture) -> None:
    assert snap_compare(app(), terminal_size=(80, 24), run_before=raced(1000, "v"))


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
def test_a_race_of_the_default_model(snap_compare: Picture, size: tuple[int, int]) -> None:
    """Both lanes' steps were recorded; nobody runs."""

    async def run(pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r", "enter")
        screen = pilot.app.screen
        assert isinstance(screen, RaceScreen)
        for lane, channels in zip(screen.guest.lanes, screen.guest.channels, strict=True):
            feeder = Feeder(Link(channels.mailbox, channels.history))
            feeder.play(traced_records(f"trace-{lane.name}.jsonl"), speed=None)
        screen.look()
        await pilot.pause()

    assert snap_compare(app(), terminal_size=size, run_before=run)
