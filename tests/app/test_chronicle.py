"""Recorded steps: figures at any of them, what is kept, and the steps worth stopping at."""

from __future__ import annotations

import pytest

from cbtui.following.chronicle import KEYFRAME_EVERY, Chronicle
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.request import SamplingParams
from engine.stream.ledger import Ledger
from engine.stream.metrics import Metrics, MetricsSnapshot
from engine.stream.records import QuietRecord, Record, StepRecord


class Life:
    """An engine on the fake runner, its records told to a chronicle, and the figures after each of them."""

    def __init__(self, limit: int = 10_000, *, keeps_figures: bool = True, **config: object) -> None:
        runner = FakeRunner()
        runner.start()
        self.engine = Engine(EngineConfig(**config), runner, runner.info)  # type: ignore[arg-type]
        self.keeps_figures = keeps_figures
        self.ledger = Ledger()
        self.chronicle = Chronicle(self.ledger, limit)
        self.figures: dict[int, MetricsSnapshot] = {}
        self.records: list[Record] = []

    def ask(self, *caps: int) -> Life:
        for cap in caps:
            self.engine.add_request([1, 2, 3], SamplingParams(max_tokens=cap, ignore_eos=True))
        return self

    def take(self, record: Record | None) -> None:
        if record is None:
            return
        self.ledger.apply(record)
        self.chronicle.append(record)
        self.records.append(record)
        opens_the_next = isinstance(record, QuietRecord) and record.events.submitted
        if self.keeps_figures and not opens_the_next:
            self.figures[record.step] = self.chronicle.metrics.snapshot()

    def step(self, count: int = 1_000_000) -> Life:
        while count and self.engine.has_work:
            self.take(self.engine.step())
            count -= 1
        return self

    def quiet(self) -> Life:
        self.take(self.engine.take_quiet_record())
        return self

    def new_stretch(self) -> Life:
        self.chronicle.begin_stretch()
        return self


def test_figures_at_every_step_are_those_that_stood_on_the_screen() -> None:
    life = Life(limit=40).ask(4, 30, 7, 25, 3).step()
    life.new_stretch().ask(6, 6, 6, 6).quiet().step()
    steps = life.chronicle.steps
    for order in (steps, steps[::-1], steps[::7] + steps[::-5]):
        for step in order:
            assert life.chronicle.moment(step).metrics == life.figures[step], step


def test_what_happened_between_steps_belongs_to_the_step_before() -> None:
    life = Life().ask(9, 9, 9, 9).step(3)
    life.engine.abort_request("r3")
    life.quiet().step()
    moment = life.chronicle.moment(3)
    assert [record.step for record in moment.records] == [1, 2, 3, 3]
    assert moment.metrics.num_finished == 1 and moment.metrics == life.figures[3]
    assert 3 in life.chronicle.telling
    assert life.chronicle.moment(4).metrics == life.figures[4]


def test_a_change_after_a_moment_was_looked_at_is_not_lost() -> None:
    life = Life().ask(9, 9).step(3)
    assert life.chronicle.moment(3).metrics.num_finished == 0
    life.engine.abort_request("r1")
    life.quiet()
    assert life.chronicle.moment(3).metrics.num_finished == 1


def test_a_moment_knows_its_whole_stretch_and_its_records_up_to_it() -> None:
    life = Life().ask(5).step()
    life.new_stretch().ask(4).quiet().step()
    moment = life.chronicle.moment(2)
    assert [record.step for record in moment.records] == [1, 2]
    assert (moment.stretch.lanes.first_step, moment.stretch.lanes.last_step) == (1, 5)
    assert moment.run is not None and moment.run.steps == 2
    later = life.chronicle.moment(7)
    assert [r.step for r in later.records if isinstance(r, StepRecord)] == [6, 7]


def test_the_run_of_its_last_step_is_over() -> None:
    life = Life().ask(5).step()
    assert life.chronicle.moment(5).run is None
    assert life.chronicle.moment(5).metrics.num_steps == 5


def test_the_oldest_steps_are_dropped_and_counted_and_figures_stay_right() -> None:
    life = Life(limit=40).ask(*[20] * 30).step()
    chronicle = life.chronicle
    assert chronicle.first_step is not None and chronicle.first_step > 1
    assert 40 <= len(chronicle.steps) <= 60
    assert chronicle.num_dropped + len(chronicle.stretch.records) == len(life.records)
    assert chronicle.first_step - 1 not in chronicle and 1 not in chronicle
    for step in chronicle.steps:
        assert chronicle.moment(step).metrics == life.figures[step]
    assert chronicle.telling[0] >= chronicle.first_step
    # The timeline is small: it keeps what the records no longer say.
    assert chronicle.stretch.lanes.num_steps == chronicle.steps[-1]
    with pytest.raises(KeyError):
        chronicle.moment(1)


def test_whole_stretches_go_when_all_their_records_have_gone() -> None:
    life = Life(limit=20)
    for _ in range(30):
        life.new_stretch().ask(3, 3).quiet().step()
    assert len(life.chronicle.stretches) < 15
    for step in life.chronicle.steps:
        assert life.chronicle.moment(step).metrics == life.figures[step]


def test_entering_ending_and_switching_are_steps_to_stop_at() -> None:
    life = Life(max_num_seqs=1).ask(4, 5).step(6)
    life.engine.set_mode("static")
    life.step()
    #: The first enters, ends; the second enters; the mode changes; the second ends.
    assert life.chronicle.telling == [1, 4, 5, 7, 9]


def test_any_of_a_hundred_thousand_steps_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(limit=8_000, keeps_figures=False, max_num_seqs=8).ask(*[40] * 1600).step(8_000)
    steps = life.chronicle.steps
    folded: list[int] = []
    apply = Metrics.apply
    with monkeypatch.context() as patched:
        patched.setattr(
            Metrics, "apply", lambda self, record: (folded.append(record.step), apply(self, record))
        )
        for place in (0, len(steps) // 3, len(steps) // 2, -2):
            folded.clear()
            life.chronicle.moment(steps[place])
            assert len(folded) <= KEYFRAME_EVERY  # it does not grow with the run
    assert life.chronicle.moment(steps[-1]).metrics == Metrics.snapshot(life.chronicle.metrics)
