"""The race on the screen: a real race of fake engines, turned by hand; no thread, no clock."""

from __future__ import annotations

from textual.pilot import Pilot

from cbtui.app import CbtuiApp
from cbtui.looks.pieces import plain
from cbtui.options import LaunchOptions
from cbtui.racing.score import score
from cbtui.racing.setup import pairs
from cbtui.racing.words import commentary, sentence, verdict
from cbtui.screens.confirm import AskScreen
from cbtui.screens.race import RaceScreen
from cbtui.widgets.lines import LinesView
from cbtui.widgets.prompt_bar import PromptBar
from engine.config import EngineConfig
from engine.live import replay
from engine.live.commands import Close, Command, Pause, PromptRequest, Resume, SetSpeed, Step
from engine.live.guest import Lend
from engine.workload import tutorial_workload
from tests.app.race_track import Track
from tests.app.replay import Feeder, drive, fake_records


def ready(**changes: object) -> Feeder:
    feeder = Feeder()
    feeder.ready(**changes)
    return feeder


def lent(commands: list[Command]) -> Lend:
    (command,) = commands
    assert isinstance(command, Lend)
    return command


def race_of(app: CbtuiApp) -> RaceScreen:
    """The race in front."""
    assert isinstance(app.screen, RaceScreen)
    return app.screen


async def in_race(app: CbtuiApp, pilot: Pilot[None], choice: str = "enter") -> RaceScreen:
    """Begin the race on offer, or another by its number."""
    await pilot.press("escape", "r", choice)
    return race_of(app)


def test_r_races_the_tutorials_six_when_nothing_was_typed() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("enter")
        assert isinstance(app.screen, RaceScreen)
        guest = lent(feeder.commands).guest
        assert guest is app.screen.guest
        assert [lane.name for lane in app.screen.guest.lanes] == ["static", "continuous"]
        assert app.screen.guest.lanes[0].entries == tuple(tutorial_workload())

    drive(feeder, script)


def test_r_races_the_requests_so_far_with_their_ids() -> None:
    feeder = Feeder()
    feeder.play(fake_records())

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r", "2")
        assert isinstance(app.screen, RaceScreen)
        lanes = app.screen.guest.lanes
        assert [lane.name for lane in lanes] == ["continuous-padded", "continuous"]
        assert [entry.max_tokens for entry in lanes[0].entries] == [2, 5, 8, 3]

    drive(feeder, script)


def test_a_race_without_a_model_is_put_off_in_words() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r")
        assert app.screen is app.main

    drive(Feeder(), script)


def test_keys_of_the_race_and_the_way_back() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        track = Track(screen.guest)
        track.rounds(3)
        screen.look()
        assert [score(lane).steps for lane in screen.lanes] == [3, 3]
        await pilot.press("s")
        track.turns()
        screen.look()
        assert [score(lane).steps for lane in screen.lanes] == [4, 4]
        await pilot.press("less_than_sign")
        assert screen.guest.commands.take_all() == [SetSpeed(128.0)]
        first = screen.guest
        await pilot.press("r")
        assert screen.guest is not first and first.commands.take_all() == [Close()]
        await pilot.press("escape")
        assert app.screen is app.main
        assert screen.guest.commands.take_all() == [Close()]

    drive(feeder, script)


def test_the_race_ends_with_one_sentence() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        track = Track(screen.guest)
        track.rounds(100)
        screen.look()
        assert commentary(screen.lanes) == (
            "Static: 1 request decoding, 2 slots held by those that ended, 3 waiting for the wave to end. "
            "Continuous: 2 requests decoding."
        )
        track.to_the_end()
        screen.look()
        assert verdict(screen.lanes) == (
            "Continuous needed 300 steps where static needed 480 (1.60×) for the same 611 tokens, because "
            "static spent 829 slot-steps on requests that had already ended, while others waited for those "
            "slots."
        )
        assert "Every output token is the same" in plain(sentence(screen.lanes)[1])
        await pilot.pause()
        seen = " ".join(
            " ".join(plain(line).split()) for one in screen.query(LinesView) for line in one.visible_lines()
        )
        assert verdict(screen.lanes) in seen
        assert "mean first token, steps" in seen and "mean completion, steps" in seen
        figures = score(screen.lanes[0])
        assert (figures.ttft_steps, figures.completion_steps, figures.barrier_steps) == (
            151.0,
            251 + 5 / 6,
            390.0,
        )

    drive(feeder, script)


def test_six_slots_end_in_a_tie() -> None:
    feeder = ready(config=EngineConfig(max_num_seqs=6))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        Track(screen.guest).to_the_end()
        screen.look()
        assert verdict(screen.lanes).startswith(
            "A tie: 300 steps in both lanes, because with 6 slots for 6 requests nobody had to wait"
        )

    drive(feeder, script)


def test_padding_is_named_where_it_is_the_difference() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot, "2")
        Track(screen.guest).to_the_end()
        screen.look()
        assert "A tie: 300 steps in both lanes, but continuous-padded sent" in verdict(screen.lanes)
        assert "are padding, which a packed row does not have" in verdict(screen.lanes)

    drive(feeder, script)


def test_a_dead_model_ends_the_race_in_words() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        track = Track(screen.guest)
        track.rounds(2)
        screen.guest.lost("the model process was killed")
        screen.look()
        assert plain(sentence(screen.lanes)[0]) == "The race has ended: the model process was killed."
        await pilot.press("s", "space", "escape")
        assert app.screen is app.main

    drive(feeder, script)


def test_cbtui_race_begins_as_soon_as_the_model_is_there() -> None:
    feeder = Feeder()
    requests = (PromptRequest(prompt="a", max_tokens=2), PromptRequest(prompt="b", max_tokens=3))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.look()
        assert app.screen is app.main
        feeder.ready()
        app.main.look()
        await pilot.pause()
        assert isinstance(app.screen, RaceScreen)
        assert app.screen.guest.lanes[1].entries == requests
        await pilot.press("escape")
        feeder.ready(step=1)
        app.main.look()
        await pilot.pause()
        assert app.screen is app.main

    drive(feeder, script, options=LaunchOptions(race=requests))


def test_the_race_fits_every_size() -> None:
    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        Track(screen.guest).rounds(20)
        screen.look()
        for size in ((160, 50), (80, 24), (60, 18), (40, 10), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await pilot.press("v")
        assert app.screen is screen

    drive(ready(), script)


def test_a_chunked_lane_has_a_small_budget_and_says_whether_it_mattered() -> None:
    short = tuple(PromptRequest(prompt="x" * 5, max_tokens=cap) for cap in (6, 3, 4))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.race(pairs()[2], short)
        await pilot.pause()
        screen = race_of(app)
        assert screen.guest.lanes[1].config.max_num_batched_tokens == 64
        Track(screen.guest).to_the_end()
        screen.look()
        assert verdict(screen.lanes) == (
            "No prompt was long enough to be cut: 6 steps in continuous and 6 in chunked."
        )

    drive(ready(), script)


def test_chunks_are_praised_for_the_shorter_gap() -> None:
    long = tuple(PromptRequest(prompt="x" * n, max_tokens=cap) for n, cap in ((5, 30), (5, 4), (400, 4)))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        app.main.race(pairs()[2], long)
        await pilot.pause()
        screen = race_of(app)
        Track(screen.guest).to_the_end()
        screen.look()
        words = verdict(screen.lanes)
        assert words.startswith("The longest a running request waited for its next token was 451.0 ms in")
        assert "and 114.0 ms in chunked" in words

    drive(ready(config=EngineConfig(max_num_seqs=2)), script)


def test_keys_of_a_race_faster_than_its_lanes_count_from_what_was_asked() -> None:
    feeder = ready()

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        screen = await in_race(app, pilot)
        await pilot.press("<", "<", "space", "space", "s", "space")
        assert screen.guest.commands.take_all() == [
            SetSpeed(128.0), SetSpeed(64.0), Pause(), Resume(), Step(), Resume()
        ]  # fmt: skip

    drive(feeder, script)


def test_a_race_of_many_says_which_it_takes() -> None:
    feeder = Feeder()
    feeder.play(fake_records(caps=(1,) * 70, slots=8))

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r")
        question = str(app.screen.query_one(".question").content)  # type: ignore[attr-defined]
        assert question.startswith("The newest 64 of the 70 requests so far in two modes")

    drive(feeder, script)


def test_where_there_is_no_model_of_its_own_a_race_says_so_and_lessons_have_the_toy() -> None:
    feeder = ready(is_recording=True, refused=replay.REFUSED)

    async def script(app: CbtuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("escape", "r")
        assert app.screen is app.main
        assert app.main.query_one(PromptBar).notice.startswith(replay.NO_MODEL)
        await pilot.press("l")
        assert "on a toy model: your own engine" in str(app.screen.query_one(".question").content)  # type: ignore[attr-defined]

    drive(feeder, script)
