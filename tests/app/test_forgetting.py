"""Stories of finished requests are kept up to a number; what is dropped is said and nothing needs it."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.drawing import slot_history
from cbtui.drawing.slot_history import SlotHistory
from cbtui.following.follower import Follower
from cbtui.looks.pieces import plain
from cbtui.options import LaunchOptions
from cbtui.widgets.finished import Finished, finished_at
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner, fake_token_bytes
from engine.live.channels import History, Mailbox
from engine.request import SamplingParams
from engine.stream.records import StepRecord
from tests.app.replay import Feeder, drive, fake_records


class Served:
    """An engine on the fake runner, followed as a screen does."""

    def __init__(self, history: int, stories: int, slots: int = 4, mode: str = "continuous") -> None:
        runner = FakeRunner()
        self.engine = Engine(
            EngineConfig(mode=mode, max_num_seqs=slots, num_blocks=1024),
            runner,
            runner.info,
            token_bytes=fake_token_bytes,
        )
        self.history = History(history)
        self.follower = Follower(Mailbox(), self.history, stories)
        self.asked = 0

    def serve(self, count: int, at_once: int = 50, max_tokens: int = 2) -> None:
        """So many requests, never more than `at_once` unfinished; until they have ended."""
        self.press(count, at_once, max_tokens)
        while self.engine.has_work:
            self._step()
        self.follower.poll()

    def press(self, count: int, at_once: int = 50, max_tokens: int = 2) -> None:
        """The same, until the last one has been asked."""
        until = self.asked + count
        while self.asked < until:
            while self.asked < until and len(self.engine.requests) < at_once:
                prompt = [self.asked % 251, self.asked % 241, 7]
                self.engine.add_request(prompt, SamplingParams(max_tokens=max_tokens + self.asked % 3))
                self.asked += 1
            self._step()

    def _step(self) -> None:
        record = self.engine.step()
        assert record is not None
        self.history.append(record)
        if record.step % 3 == 0:  # a screen looks less often than an engine steps
            self.follower.poll()


@pytest.mark.parametrize("mode", ["continuous", "static"])
def test_every_kept_step_can_be_looked_at_and_knows_its_requests(mode: str) -> None:
    served = Served(history=60, stories=5, mode=mode)
    served.serve(400)
    follower = served.follower
    ledger = follower.ledger
    assert ledger.num_finished == ledger.num_requests == 400
    assert 5 <= len(ledger.finished) < 200 and ledger.num_forgotten == 400 - len(ledger.finished)
    assert set(ledger.stories) == set(ledger.finished)
    for step in follower.chronicle.steps:
        frame = follower.frame(step=step)
        assert frame.record is not None
        for segment in frame.record.segments:
            assert segment.request_id in frame.badges
            assert ledger[segment.request_id].request.request_id == segment.request_id
        assert all(one in ledger.stories for one in finished_at(frame))
    assert follower.last_run is not None and follower.last_run.summary.num_requests == 400


def test_the_same_requests_are_recognised_though_their_stories_are_gone() -> None:
    served = Served(history=30, stories=0)
    served.serve(120, at_once=200)
    served.engine.set_mode("static")
    served.asked = 0
    served.serve(120, at_once=200)
    follower = served.follower
    assert follower.ledger.num_forgotten > 150
    assert follower.twin is not None and follower.twin.summary.modes == ("continuous",)
    assert follower.last_run is not None and follower.last_run.summary.modes == ("static",)


def test_what_is_long_past_grows_coarser_and_keeps_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_history, "MOST_RUNS", 64)
    served = Served(history=20, stories=5, slots=1)
    served.serve(300, max_tokens=1)
    lanes = served.follower.chronicle.stretch.lanes
    runs = list(lanes.states(0, lanes.first_step, lanes.last_step + 1))
    assert len(runs) < 64 + 2 * 30
    assert sum(steps for _, steps in runs) == lanes.num_steps == served.engine.step_number
    # The steps one can go back to are as they were.
    exact = SlotHistory(record for record in served.follower.records)
    for step in served.follower.chronicle.steps:
        assert lanes.column(0, step, step + 1) == exact.column(0, step, step + 1)


def test_finished_says_how_many_were_dropped() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape")
        panel = app.main.query_one(Finished)
        assert str(panel.border_title).startswith("Finished 60 · the newest ")
        kept = len(app.main.follower.ledger.finished)
        assert kept < 40
        panel.focus()
        await pilot.press(*["pagedown"] * 8)
        panel.scroll_to(y=1000, animate=False)
        await pilot.pause()
        lines = [plain(line) for line in panel.visible_lines()]
        assert f" {60 - kept:,} older ones dropped (--stories)" in "\n".join(lines)

    records = fake_records(caps=(2,) * 60, slots=2)
    feeder = Feeder()
    feeder.link.history.limit = 16
    feeder.play(records)
    drive(feeder, script, options=LaunchOptions(stories=3))


def test_an_open_text_stays_when_its_story_is_dropped() -> None:
    records = fake_records(caps=(2,) * 60, slots=2)
    first = next(number for number, record in enumerate(records) if record.events.finished) + 1

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        shown = app.screen.query_one(".text-whole").render()
        feeder.play(records[first:])
        app.main.look()
        await pilot.pause()
        assert "r0" not in app.main.follower.ledger.stories
        assert app.screen.query_one(".text-whole").render() == shown
        await pilot.press("y", "escape")
        await pilot.press("enter")

    feeder = Feeder()
    feeder.link.history.limit = 16
    feeder.play(records[:first])
    drive(feeder, script, options=LaunchOptions(stories=0))


@pytest.mark.long
def test_memory_is_flat_over_a_hundred_thousand_requests() -> None:
    served = Served(history=500, stories=500, slots=64)
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(5):
            served.press(20_000, at_once=200)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert served.follower.ledger.num_requests == 100_000
    assert served.follower.ledger.num_forgotten > 80_000
    assert isinstance(served.follower.record, StepRecord)
    # It goes up and down with when history is dropped, and no further.
    assert max(sizes[3:]) < 1.1 * max(sizes[:2]), sizes
