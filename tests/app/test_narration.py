"""What happened, in words: the sentences a stranger must understand the difference from."""

from __future__ import annotations

import pytest

from cbtui.looks.pieces import Line, line_width, plain, wrap
from cbtui.telling.narration import EventLog, brief, events_of, figures, narration, telling
from cbtui.telling.run_result import result_lines, summary, twin_of
from engine.config import EngineConfig
from tests.widgets.stage import TUTORIAL, Stage


def told(stage: Stage, **options: object) -> str:
    return "\n".join(plain(line) for line in telling(stage.frame("paused", **options)))  # type: ignore[arg-type]


def events(stage: Stage, **options: object) -> list[str]:
    newest = EventLog().last(stage.frame(**options))  # type: ignore[arg-type]
    return [f"{event.step} {plain(event.line)}" for event in newest]


# -- one step ---------------------------------------------------------------------------------


def test_a_result_says_that_slots_stood_empty_while_others_waited() -> None:
    stage = Stage(slots=3, num_blocks=2, block_size=4, max_model_len=8)
    stage.submit(("one", 7), ("two", 7))
    _, why, _ = [plain(line) for line in result_lines(stage.drain().frame())]
    assert "stood empty while others waited: there were not enough free KV blocks" in why


def test_the_tutorials_step_seven() -> None:
    assert told(Stage().tutorial().step(7)) == (
        "A ended in step 6 and freed slot 0; D entered it at once.\n"
        "D's 10-token prompt rides in the same pass as the next token of B and C: "
        "T = 10 + 1 + 1 = 12 tokens.\n"
        "As a rectangle: 3 × 10 = 30 positions, 18 of them padding."
    )


def test_the_same_step_in_a_rectangle() -> None:
    assert (
        "The rectangle is 3 × 10 = 30 positions: 12 useful, 18 padding. One packed row would need 12."
        in told(Stage("continuous-padded").tutorial().step(7))
    )


def test_a_dead_slot_says_whose_since_when_and_who_could_have_been_there() -> None:
    assert told(Stage("static").tutorial().step(7)).startswith(
        "Slot 0 is dead: A ended at step 6, yet its row goes through the model until the wave ends.\n"
        "In continuous mode D would have entered it at step 7.\n"
    )


def test_several_dead_slots_are_counted_beside_those_who_wait() -> None:
    assert "In all, 2 of 3 slots do no useful work while 3 requests wait." in told(
        Stage("static").tutorial().step(51)
    )


def test_nobody_is_said_to_have_lost_a_slot_when_nobody_waits() -> None:
    stage = Stage("static")
    stage.submit(("a", 2), ("b", 9))
    text = told(stage.step(5))
    assert "Slot 0 is dead" in text and "would have entered" not in text


def test_who_came_after_the_slot_was_dead_would_have_entered_then() -> None:
    stage = Stage("static", slots=2)
    stage.submit(("a", 2), ("b", 30))
    stage.step(10)
    stage.submit(("c", 5))
    stage.quiet().step(2)
    assert "In continuous mode C would have entered it at step 11." in told(stage)


def test_a_wave_begins_and_ends() -> None:
    stage = Stage("static").tutorial()
    assert "A wave begins: A, B and C entered. Nobody else may enter before the last of them ends." in told(
        stage.step()
    )
    text = told(stage.step(299))
    assert "The wave is over: all its slots are free again." in text
    assert "A had been ready since step 6, 294 steps ago." in text


def test_a_finish_says_what_becomes_of_the_slot() -> None:
    assert "A made its last token (6 of 6) and frees slot 0." in told(Stage().tutorial().step(6))
    assert "slot 0 stays held until the wave ends." in told(Stage("static").tutorial().step(6))


def test_a_prompt_cut_by_the_budget() -> None:
    stage = Stage(slots=1, max_num_batched_tokens=64)
    stage.submit(("long", 4), tokens=100)
    assert "Only 64 prompt tokens of A fit into this step's budget of 64; 36 follow." in told(stage.step())


def test_a_preemption_names_the_victim_and_what_is_lost() -> None:
    stage = Stage(slots=2, num_blocks=4, block_size=4, max_model_len=16)
    stage.submit(("a b c d", 10), ("e f g h", 10))
    while not (stage.last and stage.last.events.preempted):
        stage.step()
    lost = stage.last.events.preempted[0].lost_tokens
    assert f"B gave its own back and waits again; {lost} tokens must be fed anew." in told(stage)
    assert any(f"B gave way in slot 1: {lost} tokens to be fed again" in line for line in events(stage))
    stage.drain()
    resumed = next(r.step for r in stage.records if any(a.resumed for a in r.events.admitted))  # type: ignore[union-attr]
    assert "B is back, in slot" in told(stage, step=resumed)


def test_draining_before_static_says_what_it_waits_for() -> None:
    stage = Stage().tutorial().step(10)
    stage.engine.set_mode("static")
    text = told(stage.step())
    assert "The mode changed from continuous to static." in text
    assert "Static batching starts a wave of its own only when 3 running requests have ended" in text


# -- events -----------------------------------------------------------------------------------


def test_the_last_events_newest_first_and_none_for_plain_decode_steps() -> None:
    assert events(Stage().tutorial().step(30)) == [
        "7 D entered slot 0 after 6 steps of waiting",
        "6 A finished (length); slot 0 is free",
        "1 A, B and C entered slots 0, 1 and 2",
    ]


def test_events_of_a_static_run() -> None:
    assert events(Stage("static").tutorial().step(301)) == [
        "301 wave: D, E and F entered slots 0, 1 and 2",
        "300 barrier: the wave is over, slots 0, 1 and 2 free again",
        "300 C finished (length)",
        "50 B finished (length); slot 1 is held",
        "6 A finished (length); slot 0 is held",
    ]


def test_settings_and_cancels_are_events_too() -> None:
    stage = Stage().tutorial().step(3)
    stage.engine.set_mode("static")
    stage.engine.configure(EngineConfig(max_num_seqs=2))
    stage.engine.abort_request("r5")
    stage.quiet()
    assert events(stage)[:3] == ["3 F was cancelled", "3 slots 3 → 2", "3 mode continuous → static"]


def test_a_log_that_follows_the_run_says_the_same_as_a_fresh_one() -> None:
    stage, log = Stage("static").tutorial(), EventLog()
    for _ in range(480):
        stage.step()
        assert log.last(stage.frame()) == EventLog().last(stage.frame())


def test_looking_back_hides_what_came_later() -> None:
    assert events(Stage().tutorial().step(30), step=6)[0].startswith("6 A finished")


def test_a_plain_step_has_no_events() -> None:
    stage = Stage().tutorial().step(5)
    assert events_of(stage.records[-1], stage.ledger, stage.badges) == []


# -- figures ----------------------------------------------------------------------------------


def test_figures_do_not_move_from_step_to_step() -> None:
    stage = Stage("static").tutorial()
    columns = set()
    for _ in range(302):
        first, second = figures(stage.step().last)  # type: ignore[arg-type]
        columns.add(
            (plain(first).index(" cached"), plain(second).index("dead"), plain(second).index("padding"))
        )
    assert len(columns) == 1


# -- results ----------------------------------------------------------------------------------


def test_the_result_of_a_static_run_stays_and_explains_itself() -> None:
    stage = Stage("static").tutorial().drain()
    first, why, _ = [plain(line) for line in result_lines(stage.frame())]
    assert first == "static: 480 steps, 611 of 1,440 slot-steps useful (42 %), 829 dead"
    assert "The 829 dead ones went to requests that had already ended" in why


def both(first: str, second: str, slots: int = 3) -> list[str]:
    stage = Stage(first, slots).tutorial().drain()
    stage.engine.set_mode(second)
    stage.submit(*TUTORIAL)
    stage.drain()
    return [plain(line) for line in result_lines(stage.frame())]


def test_the_same_requests_in_another_mode_stand_beside_it_with_the_cause() -> None:
    new, old, why, pace = both("static", "continuous")
    assert new == "continuous: 300 steps, 611 of 900 slot-steps useful (68 %), 0 dead"
    assert old == "static: 480 steps, 611 of 1,440 slot-steps useful (42 %), 829 dead"
    assert why == (
        "Static took 1.60× the steps (480 against 300) for the same 611 tokens: while others waited, it "
        "spent 829 slot-steps on requests that had already ended, because it gives no slot away before "
        "the longest request of the wave has ended. Continuous gave a slot to the next request in the "
        "very next step."
    )
    assert pace == "continuous 16 s at 55 ms a step; static 26 s at 55 ms a step"


def test_with_a_slot_for_everyone_there_is_nothing_to_gain() -> None:
    assert "Both took 300 steps: there was a slot for every request" in both("static", "continuous", 6)[2]


def test_with_one_slot_neither() -> None:
    assert (
        "with one slot, requests run one after the other in either mode" in both("static", "continuous", 1)[2]
    )


def test_two_continuous_layouts_differ_in_padding_only() -> None:
    assert "only the shape differed" in both("continuous", "continuous-padded")[2]


def test_runs_with_other_slots_are_not_compared() -> None:
    stage = Stage("static").tutorial().drain()
    stage.engine.set_mode("continuous")
    stage.engine.configure(EngineConfig(max_num_seqs=6))
    stage.submit(*TUTORIAL)
    _, old, why, _ = [plain(line) for line in result_lines(stage.drain().frame())]
    assert old.endswith("(3 slots)") and "the slots differed" in why


def test_runs_whose_requests_arrived_at_other_times_are_not_compared() -> None:
    stage = Stage("static")
    stage.submit(("a", 3), ("b", 3)), stage.drain()
    stage.engine.set_mode("continuous")
    stage.submit(("a", 3)), stage.step(2)
    stage.submit(("b", 3)), stage.drain()
    assert "arrived at other steps" in plain(result_lines(stage.frame())[2])


def test_other_requests_have_no_twin() -> None:
    stage = Stage("static").tutorial().drain()
    stage.engine.set_mode("continuous")
    stage.submit(("something else", 3))
    stage.drain()
    assert twin_of(stage.metrics.runs[-1], stage.metrics.runs) is None
    assert summary(stage.metrics.runs[-1]).startswith("continuous: 3 steps, 3 of 9 slot-steps useful (33 %)")


def test_a_running_engine_tells_what_stays_so() -> None:
    assert telling(Stage().tutorial().step(60).frame("running")) == []
    running = [plain(line) for line in telling(Stage("static").tutorial().step(60).frame("running"))]
    assert running == [
        "Slot 0 is dead: A ended at step 6, yet its row goes through the model until the wave ends.",
        "In continuous mode D would have entered it at step 7.",
        "In all, 2 of 3 slots do no useful work while 3 requests wait.",
    ]


def test_two_lines_of_a_running_wave_say_what_is_dead() -> None:
    stage, log = Stage("static").tutorial(), EventLog()
    _, second = brief(stage.step(6).frame("running"), log, 78)
    assert plain(second) == "step 6  A finished (length); slot 0 is held"
    _, second = brief(stage.step(54).frame("running"), log, 78)
    assert plain(second) == "2 of 3 slots are dead; in continuous mode D would be in slot 0 since step 7"


# -- fitting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [30, 44, 60, 100])
def test_nothing_is_wider_than_the_panel(cells: int) -> None:
    for mode in ("continuous", "continuous-padded", "static"):
        stage, log = Stage(mode).tutorial(), EventLog()
        for _ in range(60):
            frame = stage.step().frame("paused")
            for line in [*narration(frame, log, cells), *brief(frame, log, cells)]:
                assert line_width(line) <= cells
            assert len(brief(frame, log, cells)) <= 2


def test_an_empty_engine_says_what_will_be_here() -> None:
    frame = Stage().frame()
    assert plain(narration(frame, EventLog(), 46)[0]) == "What each step did, and why"
    assert plain(brief(frame, EventLog(), 46)[0]) == "What each step did, and why"


def test_wrapping_keeps_words_units_and_styles() -> None:
    line: Line = (("it took ", ""), ("26 s", "strong"), (" and ", ""), ("A", "badge:#e69f00"), (", done", ""))
    assert [plain(one) for one in wrap(line, 10)] == ["it took", "26 s and", "A, done"]
    assert ("A", "badge:#e69f00") in wrap(line, 10)[2]
    assert [plain(one) for one in wrap((("日本語 日本", ""),), 6)] == ["日本語", "日本"]
