"""Following an engine: folding records into frames, runs, twins, and gaps."""

from __future__ import annotations

from cbtui.following.follower import Follower
from cbtui.following.link import Link
from engine.live.channels import History, Mailbox
from engine.live.state import EngineState
from engine.stream.records import StepRecord
from tests.app.replay import Feeder, fake_records, later


def following(feeder: Feeder) -> Follower:
    return Follower(feeder.link.mailbox, feeder.link.history)


def test_nothing_new_is_no_news() -> None:
    follower = following(Feeder())
    assert not follower.poll()
    frame = follower.frame()
    assert frame.record is None and frame.is_live and not frame.records and frame.run is None


def test_a_frame_is_the_newest_step_with_everything_folded() -> None:
    feeder = Feeder()
    follower = following(feeder)
    feeder.play(fake_records(), upto=3)
    assert follower.poll()
    frame = follower.frame("r1")
    assert frame.record is not None and frame.record.step == 3
    assert frame.ledger["r1"].outputs_at(3) and len(frame.ledger["r1"].output_token_ids) == 3
    assert frame.badges["r3"].letter == "D"
    assert frame.run is not None and frame.run.steps == 3
    assert frame.selected == "r1"
    assert not follower.poll()


def test_folding_piece_by_piece_is_folding_at_once() -> None:
    records = fake_records()
    slow, fast = Feeder(), Feeder()
    one, other = following(slow), following(fast)
    for record in records:
        slow.play([record])
        one.poll()
    fast.play(records)
    other.poll()
    assert one.frame().metrics == other.frame().metrics
    assert one.frame().records == other.frame().records
    assert [run.steps for run in one.metrics.runs] == [run.steps for run in other.metrics.runs]


def test_a_state_without_records_is_news_too() -> None:
    feeder = Feeder()
    follower = following(feeder)
    feeder.ready(paused=True)
    assert follower.poll() and follower.frame().state.paused


def test_the_records_of_a_run_stay_until_the_next_one_begins() -> None:
    feeder = Feeder()
    follower = following(feeder)
    first = fake_records()
    feeder.play(first)
    follower.poll()
    assert len(follower.frame().records) == len(first)
    steps = first[-1].step
    feeder.play(later(first, steps, 4), upto=steps + 1)
    follower.poll()
    assert [record.step for record in follower.frame().records] == [steps + 1]


def test_the_same_requests_in_another_mode_become_the_twin_once_all_is_done() -> None:
    feeder = Feeder()
    follower = following(feeder)
    static, continuous = fake_records(mode="static"), fake_records()
    feeder.play(static)
    follower.poll()
    assert follower.last_run is not None and follower.twin is None
    steps = static[-1].step
    moved = later(continuous, steps, 4)
    feeder.play(moved, upto=steps + 2)
    follower.poll()
    assert follower.last_run is None and follower.twin is None
    feeder.play(moved[feeder.link.history.total - len(static) :])
    follower.poll()
    assert follower.last_run is not None and follower.twin is not None
    assert follower.last_run.summary.modes == ("continuous",)
    assert follower.twin.summary.modes == ("static",)
    assert (follower.twin.lanes.first_step, follower.twin.lanes.last_step) == (1, static[-1].step)


def test_other_requests_are_no_twin() -> None:
    feeder = Feeder()
    follower = following(feeder)
    feeder.play(fake_records(mode="static"))
    feeder.play(later(fake_records(caps=(3, 3)), 100, 4))
    follower.poll()
    assert follower.twin is None


def test_records_dropped_before_they_were_read_leave_what_can_be_told() -> None:
    link = Link(Mailbox(EngineState(version=1)), History(limit=4))
    feeder = Feeder(link)
    follower = following(feeder)
    feeder.play(fake_records())
    assert follower.poll()
    assert follower.num_missed > 0
    frame = follower.frame()
    assert frame.record is not None
    assert all(segment.request_id in frame.ledger.stories for segment in frame.record.segments)
    feeder.play(later(fake_records(), 50, 10))
    follower.poll()
    assert isinstance(follower.record, StepRecord)


def test_a_fault_of_the_engines_thread_becomes_a_failure() -> None:
    feeder = Feeder()
    follower = following(feeder)
    follower.engine_broke("RuntimeError: lost")
    assert follower.frame().state.status == "failed"
    feeder.ready()
    follower.poll()
    assert follower.frame().state.failure is not None
