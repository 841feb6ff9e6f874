"""Two modes side by side on the same requests, in front of the main screen.

Reads the lanes' mailboxes and histories and puts commands into the race's queue; the race itself runs in
the engine's thread. Leaving the screen ends it, and the live engine goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from cbtui import orders
from cbtui.following.follower import Follower
from cbtui.keys import RACE_KEYS, bindings
from cbtui.racing.score import Lane
from cbtui.racing.setup import WARM_UP_STEPS, Pair, lanes_of, pairs
from cbtui.racing.words import lane_title
from cbtui.screens.arrangement import key_bar_lines
from cbtui.screens.confirm import Answer, AskScreen
from cbtui.screens.keyed import KeyedScreen
from cbtui.screens.looking import LookingScreen
from cbtui.widgets.key_bar import KeyBar
from cbtui.widgets.race_panels import FinishLines, RaceHeader, RaceSentence, RaceTable
from cbtui.widgets.timeline import Timeline
from engine.config import EngineConfig
from engine.live.commands import Close, Pause, Resume, SetSpeed, Step
from engine.live.guest import Lend
from engine.racing.guest import RaceGuest
from engine.racing.race import Entry

#: Smallest height at which finish lines and figures stand side by side with boxes around.
ROOMY = 32


class RaceScreen(KeyedScreen, LookingScreen):
    """See the module's words.

    Args:
        pair: the modes.
        config: both lanes' limits.
        entries: both lanes' requests.
        lend: brings a guest into the engine's thread.
        arrivals: requests come at their own times, so many times as fast; None: all at once.
    """

    CSS_PATH = "race.tcss"
    KEYS = RACE_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(
        self,
        pair: Pair,
        config: EngineConfig,
        entries: Sequence[Entry],
        lend: Callable[[Lend], None],
        *,
        arrivals: float | None = None,
    ) -> None:
        super().__init__()
        self._pair = pair
        self._config = config
        self._entries = tuple(entries)
        self._lend = lend
        self._arrivals = arrivals
        self._speed: float | None = None
        self.is_paused = False
        self._shows_figures = False
        self.guest = self._new_guest()
        self._followers = self._new_followers()

    def _new_guest(self) -> RaceGuest:
        lanes = lanes_of(self._pair, self._config, self._entries, self._arrivals)
        return RaceGuest(lanes, speed=self._speed, warm_up_steps=WARM_UP_STEPS)

    def _new_followers(self) -> tuple[Follower, ...]:
        return tuple(Follower(channels.mailbox, channels.history) for channels in self.guest.channels)

    def compose(self) -> ComposeResult:
        yield RaceHeader(id="race-header")
        yield Timeline(id="lane-0", classes="lane")
        yield Timeline(id="lane-1", classes="lane")
        with Horizontal(id="race-middle"):
            yield FinishLines(id="finish-lines")
            yield RaceTable(id="race-table")
        yield RaceSentence(id="race-sentence")
        yield self.make_key_bar()

    def on_mount(self) -> None:
        """Begin."""
        self._arrange()
        self._lend(Lend(self.guest))
        self.query_one(FinishLines).focus()
        self.draw()

    def on_unmount(self) -> None:
        """However it is left: the model goes back."""
        self.guest.commands.put(Close())

    # -- drawing ------------------------------------------------------------------------------

    @property
    def lanes(self) -> list[Lane]:
        """The lanes as last looked at."""
        names = (self._pair.one, self._pair.other)
        return [Lane(name, one.frame()) for name, one in zip(names, self._followers, strict=True)]

    def look(self) -> None:
        """Take in what is new and draw it."""
        news = [follower.poll() for follower in self._followers]
        if any(news):
            self.draw()

    def draw(self) -> None:
        """Draw both lanes on one scale."""
        if not self.is_mounted:
            return
        lanes = self.lanes
        steps = max((lane.run.steps for lane in lanes if lane.run), default=0)
        with self.app.batch_update():
            self.query_one(RaceHeader).show_lanes(lanes)
            for number, lane in enumerate(lanes):
                frame, panel = lane.frame, self.query_one(f"#lane-{number}", Timeline)
                panel.set_class(lane.is_done, "-done")
                panel.draw_run(frame.lanes, frame.badges, steps=steps, name=lane_title(lane))
            if lanes[0].frame.ledger.stories:
                self.query_one(FinishLines).show_lanes(lanes)
                self.query_one(RaceTable).show_lanes(lanes)
            self.query_one(RaceSentence).show_lanes(lanes)
            self.show_keys(is_paused=any(lane.frame.state.paused for lane in lanes))

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self._arrange()
        self.draw()

    def _arrange(self) -> None:
        """Heights of the lanes; without room one of the two middle panels."""
        size = self.app.size
        roomy = size.height >= ROOMY and size.width >= 100
        self.set_class(not roomy, "-small")
        self.set_class(not roomy and self._shows_figures, "-figures")
        keys = key_bar_lines(size)
        self.query_one(KeyBar).styles.height = keys
        slots = self._config.max_num_seqs
        most = max(2, (size.height - 18) // 2 - 4) if roomy else max(2, (size.height - 13 - keys) // 2)
        extra = 4 if roomy else 2
        for number in (0, 1):
            self.query_one(f"#lane-{number}").styles.height = min(slots, most) + extra

    # -- keys ---------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self.is_paused = not self.is_paused
        self.guest.commands.put(Pause() if self.is_paused else Resume())

    def action_step(self) -> None:
        self.is_paused = True
        self.guest.commands.put(Step())

    def action_speed(self, by: int) -> None:
        """Half or twice as many rounds a second."""
        try:
            # Nobody else sets it; what the lanes have published may be older than the last key.
            state = msgspec.structs.replace(self._followers[0].state, speed=self._speed)
            command = orders.speed_order(state, by)
        except orders.NoOrder as exc:
            self.notify(str(exc).replace("steps", "rounds"), timeout=2)
            return
        if isinstance(command, SetSpeed):
            self._speed = command.steps_per_s
            self.guest.commands.put(command)

    def action_again(self) -> None:
        """From the start, with the same requests."""
        self.guest.commands.put(Close())
        self.is_paused = False
        self.guest = self._new_guest()
        self._followers = self._new_followers()
        self._lend(Lend(self.guest))
        self.draw()

    def action_pair(self) -> None:
        """Choose two other modes for the same requests."""

        def chosen(pair: Pair | None) -> None:
            if pair is not None:
                self._pair = pair
                self.action_again()

        self.app.push_screen(ask_pair("The same requests again, from the start."), chosen)

    def action_turn_over(self) -> None:
        """Small screens show finish lines or figures."""
        self._shows_figures = not self._shows_figures
        self._arrange()
        self.query_one(RaceTable if self._shows_figures else FinishLines).focus()
        self.call_after_refresh(self.draw)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is something to turn over only where both do not fit."""
        return self.has_class("-small") if action == "turn_over" else True

    def action_leave(self) -> None:
        self.dismiss()


def ask_pair(question: str) -> AskScreen[Pair]:
    """The screen that asks for two modes; dismissed with the pair."""
    answers = [
        Answer(
            (str(number), *(("enter", "r") if number == 1 else ())),
            str(number),
            f"{pair.one} against {pair.other}",
            pair,
            pair.question,
        )
        for number, pair in enumerate(pairs(), 1)
    ]
    return AskScreen("Race", question, answers)
