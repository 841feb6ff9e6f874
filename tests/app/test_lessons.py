"""The six lessons: what they show is so, and their words say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.drawing.gaps import newest_gaps
from cbtui.lessons.play import LessonPlay, figures
from cbtui.lessons.scenes import LESSONS
from cbtui.looks.pieces import plain
from cbtui.options import LaunchOptions
from cbtui.screens.confirm import AskScreen
from cbtui.screens.lesson import LessonScreen
from cbtui.widgets.key_bar import KeyBar
from cbtui.widgets.lesson_words import LessonHeader, LessonWords
from engine.live.commands import Close
from engine.live.guest import Lend
from engine.racing.guest import RaceGuest
from tests.app.race_track import Track
from tests.app.replay import Feeder, drive

NUMBERS = range(1, len(LESSONS) + 1)


def steps(play: LessonPlay) -> list[int]:
    return [lane.run.steps if lane.run else 0 for lane in play.lanes]


def stops(number: int) -> tuple[LessonPlay, list[str], list[list[int]]]:
    play = LessonPlay(LESSONS[number - 1])
    words, places = [play.words()], [steps(play)]
    while not play.is_over:
        play.run_to_stop()
        words.append(play.words())
        places.append(steps(play))
    return play, words, places


def outputs(play: LessonPlay, lane: int) -> list[list[int]]:
    return [story.output_token_ids for story in play.lanes[lane].stories]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_stop_comes_and_its_words_are_filled_in(number: int) -> None:
    _, words, places = stops(number)
    assert len(words) == len(LESSONS[number - 1].stops) + 1
    assert places == sorted(places) and len({tuple(p) for p in places}) == len(places)
    for text in words:
        assert "{" not in text and "–" not in text
        assert len(text) < 300
        assert 1 <= len(re.findall(r"[.?:](?= |$)", text)) <= 5


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_is_the_same_every_time(number: int) -> None:
    assert stops(number)[1:] == stops(number)[1:]


def test_a_title_a_question_and_two_to_four_stops() -> None:
    assert len(LESSONS) == 6
    for lesson in LESSONS:
        assert lesson.question.endswith("?") and 2 <= len(lesson.stops) <= 4
        assert all(stop.panel in lesson.panels for stop in lesson.stops)


def test_1_the_barrier_falls_after_the_longest() -> None:
    _, words, places = stops(1)
    assert places == [[0], [3], [8], [16], [21]]
    assert "Of 48 slot-steps 21 were dead" in words[3]


def test_2_d_runs_in_the_step_after_a_has_ended() -> None:
    play, words, places = stops(2)
    assert places == [[0], [3], [4], [8], [16]]
    assert play.lanes[0].stories[3].slot == 0 and play.lanes[0].stories[3].first_step == 4
    assert "All five took 16 steps; in waves they took 21" in words[4]


def test_3_ten_prompt_tokens_ride_beside_two_decodes() -> None:
    _, words, places = stops(3)
    assert places == [[0], [1], [2], [3], [12]]
    assert "D's 10 prompt tokens ride beside one token of B and one of C: 12 tokens" in words[3]
    assert "3 rows × 10 columns = 30 positions, 18 of them padding" in words[3]


def test_4_b_does_not_move_when_a_is_changed() -> None:
    play, words, _ = stops(4)
    one, other = outputs(play, 0), outputs(play, 1)
    assert one[1] == other[1] and one[0] != other[0]
    assert words[-1].startswith("B's answer never moved")
    assert figures(play.lanes)["same_b"] == "B's answer never moved"


def test_5_six_slots_are_a_tie_with_dead_work_in_one_lane() -> None:
    play, words, places = stops(5)
    assert places[-1] == [16, 16]
    assert outputs(play, 0) == outputs(play, 1)
    assert "47 dead positions" in words[-1]


def test_6_chunking_flattens_the_gap_and_delays_the_newcomer() -> None:
    play, words, _ = stops(6)
    whole, chunked = (figures(play.lanes)[name] for name in ("spike", "spike_chunked"))
    assert int(whole.split()[0]) > 2.5 * int(chunked.split()[0])
    assert outputs(play, 0) == outputs(play, 1)
    first = [lane.stories[2].ttft_s for lane in play.lanes]
    assert first[0] is not None and first[1] is not None and first[0] < first[1]
    assert "C's prompt took one step above and 5 steps below" in words[2]


def test_gaps_are_columns_on_one_scale() -> None:
    lines = [plain(line) for line in newest_gaps([0.1, 0.2], 0.2, "#ffffff", 40, 3)]
    assert lines[0].startswith(" 200 ms") and "██" in lines[0]
    assert lines[1].count("█") == 4


def ready() -> Feeder:
    feeder = Feeder()
    feeder.ready()
    return feeder


def test_l_lists_the_lessons_and_space_leads_through_one() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("2")
        screen = app.screen
        assert isinstance(screen, LessonScreen)
        for number in range(1, len(screen.lesson.stops) + 1):
            await pilot.press("space")
            if not screen.play.moment.at_stop:
                await pilot.press("space")  # a second one skips the way
            assert screen.play.moment.number == number and screen.play.moment.at_stop
            await pilot.pause()
            told = [plain(line) for line in screen.query_one(LessonWords).visible_lines()]
            assert told[-1].startswith(f"space {screen.play.moment.then}")
        await pilot.press("space")
        assert isinstance(app.screen, LessonScreen) and app.screen.number == 3
        await pilot.press("l")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("escape")
        assert app.screen is app.main and feeder.commands == []

    drive(feeder, script)


def test_steps_again_other_lessons_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the picture goes

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", "1", "s", "s")
        screen = app.screen
        assert isinstance(screen, LessonScreen)
        assert steps(screen.play) == [2]
        await pilot.press("r")
        assert steps(screen.play) == [0]
        await pilot.press("p")
        assert app.screen is screen and [path.name for path in tmp_path.iterdir()] == ["cbtui-step-0.svg"]
        await pilot.press("n")
        assert isinstance(app.screen, LessonScreen) and app.screen.number == 2
        await pilot.press("escape")
        assert app.screen is app.main

    drive(ready(), script)


def test_a_program_started_for_a_lesson_ends_with_it() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert isinstance(app.screen, LessonScreen) and app.screen.number == 4
        await pilot.press("escape")
        assert not app.is_running or app._exit

    drive(Feeder(), script, options=LaunchOptions(lesson=4))


@pytest.mark.parametrize("number", NUMBERS)
def test_lessons_fit_every_size(number: int) -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("space", "space")
        for size in ((160, 50), (80, 24), (60, 18), (40, 10), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert isinstance(app.screen, LessonScreen)

    drive(Feeder(), script, options=LaunchOptions(lesson=number))


# -- on a real model -------------------------------------------------------------------------------


def lent_guest(feeder: Feeder) -> RaceGuest:
    (command,) = [one for one in feeder.commands if isinstance(one, Lend)]
    guest = command.guest
    assert isinstance(guest, RaceGuest)
    return guest


async def to_stop(screen: LessonScreen, track: Track, pilot: Pilot[None]) -> None:
    """Space, and space again so that it does not wait between rounds; the engine's thread is played here."""
    await pilot.press("space", "space")
    for _ in range(100):
        track.turns()
        screen.look()
        if screen.play.moment.at_stop:
            return
    raise AssertionError("the stop never came")


@pytest.mark.parametrize("number", [1, 4])
def test_a_lesson_on_the_loaded_model_has_the_same_stops_as_on_the_toy(number: int) -> None:
    feeder = ready()
    _, words, places = stops(number)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", str(number), "m")
        screen = app.screen
        assert isinstance(screen, LessonScreen) and screen.on_model
        header = plain(screen.query_one(LessonHeader).visible_lines()[0])
        assert "SmolLM2-135M-Instruct · step 0" in header
        guest = lent_guest(feeder)
        track = Track(guest)
        screen.look()
        for place in places[1:]:
            await to_stop(screen, track, pilot)
            assert steps(screen.play) == place
        assert screen.play.words() == words[-1]
        await pilot.press("m")
        assert not screen.on_model and guest.commands.take_all() == [Close()]
        assert steps(screen.play) == [0] * len(places[0])

    drive(feeder, script)


def test_every_lesson_says_so_while_its_model_is_made_ready() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", "1", "m")
        for number in NUMBERS:
            await pilot.pause()
            assert isinstance(app.screen, LessonScreen) and app.screen.number == number
            said = " ".join(plain(line) for line in app.screen.query_one(LessonWords).visible_lines())
            assert "SmolLM2-135M-Instruct is being made ready" in said
            await pilot.press("n")

    drive(ready(), script)


def test_a_lesson_begun_before_the_model_is_ready_waits_for_it() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", "1", "m", "s", "space")
        screen = app.screen
        assert isinstance(screen, LessonScreen)
        assert steps(screen.play) == [0]
        track = Track(lent_guest(feeder))
        await to_stop(screen, track, pilot)
        assert steps(screen.play) == [3]
        await pilot.press("escape")
        assert track.guest.commands.take_all() == [Close()]

    drive(feeder, script)


def test_a_model_that_is_gone_is_said_in_the_lesson() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", "1", "m")
        screen = app.screen
        assert isinstance(screen, LessonScreen)
        lent_guest(feeder).lost("killed")
        screen.look()
        said = " ".join(plain(line) for line in screen.query_one(LessonWords).visible_lines())
        assert "The model cannot go on (model process: killed). m plays the lesson on the toy" in said

    drive(feeder, script)


def test_without_a_model_there_is_only_the_toy() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "l", "1", "m")
        screen = app.screen
        assert isinstance(screen, LessonScreen) and not screen.on_model
        assert "model" not in plain(screen.query_one(KeyBar).visible_lines()[0])

    drive(Feeder(), script)


def test_a_program_started_for_a_lesson_on_a_model_begins_it_when_that_is_there() -> None:
    feeder = Feeder()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        assert app.screen is app.main
        feeder.ready()
        app.main.look()
        await pilot.pause()
        assert isinstance(app.screen, LessonScreen) and app.screen.number == 4 and app.screen.on_model
        lent_guest(feeder)

    drive(feeder, script, options=LaunchOptions(lesson=4, lesson_on_model=True))
