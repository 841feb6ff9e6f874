"""Where in time the view stands, and the keys that move it: back, forth, to events, to a number, to now.

Also the orders to run a number of steps, or until something happens: whoever steps wants to see the step,
so they bring the view back to now. Between the acting base and the main screen; draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from textual import on

from cbtui.following import travel
from cbtui.looks.pieces import plain
from cbtui.screens.acting import ActingScreen
from cbtui.screens.ask_number import AskNumberScreen
from cbtui.screens.blocks import BlocksScreen
from cbtui.screens.confirm import Answer, AskScreen
from cbtui.telling.words import names
from cbtui.widgets.messages import StepChosen
from cbtui.widgets.prompt_bar import PromptsEntered
from cbtui.widgets.timeline import Timeline
from engine.live.commands import UNTIL, Command, Pause, Resume, RunUntil, Step

#: Steps the question for their number begins with.
STEPS_AT_ONCE = 10
#: Steps at most at once: a slip of a finger should not run for hours.
MOST_STEPS = 100_000
#: The keys that choose what to run until.
_UNTIL_KEYS = {"finished": "f", "admitted": "a", "preempted": "p", "step": "s", "drained": "d"}


class TravelScreen(ActingScreen):
    """See the module's words."""

    #: Requests known when prompts were typed while the view looked back.
    _awaited: int | None = None
    #: What the engine runs until, by an order of this screen.
    _waited_for: str = ""

    def _travel(self, where: Callable[[], int | None]) -> None:
        try:
            step = where()
        except travel.NoStep as exc:
            self.say(str(exc))
        else:
            self._stand_at(step)

    def _stand_at(self, step: int | None) -> None:
        self.say()
        self.shown = step
        self.draw()

    def keep_place(self) -> None:
        """While the view looks back: history may be dropped from under it, and what was typed arrives."""
        self._say_arrivals()
        state = self.follower.state
        if self._waited_for and state.paused and not state.until:
            reason = "" if self._waited_for == f"step {state.step:,}" else f": {self._waited_for}"
            self.say(f"paused at step {state.step:,}{reason}")
            self._waited_for = ""
        chronicle = self.follower.chronicle
        if self.shown is not None and self.shown not in chronicle:
            self.shown = chronicle.first_step
            if self.shown is not None:
                self.say(travel.beginning(chronicle))

    @on(PromptsEntered)
    def _await_arrivals(self) -> None:
        """Prompts act on the engine of now; once they are there their letters can be named."""
        self._awaited = None if self.shown is None else self.follower.ledger.num_requests

    def _say_arrivals(self) -> None:
        ledger = self.follower.ledger
        count = 0 if self._awaited is None else ledger.num_requests - self._awaited
        if count <= 0:
            return
        new = list(islice(reversed(ledger.stories), count))[::-1]
        self._awaited = None
        if self.shown is not None:
            letters = plain(names(self.follower.badges, new))
            self.say_at_now(f"{letters} queued")

    # -- the view -----------------------------------------------------------------------------

    def action_walk(self, by: int) -> None:
        """A recorded step back or forth."""
        self._travel(lambda: travel.walk(self.follower.chronicle, self.shown, by))

    def action_event(self, by: int) -> None:
        """The previous or next step at which something happened."""
        self._travel(lambda: travel.next_event(self.follower.chronicle, self.shown, by))

    def action_first(self) -> None:
        self._travel(lambda: travel.first(self.follower.chronicle))
        if self.follower.chronicle.num_dropped:
            self.say(travel.beginning(self.follower.chronicle))

    def action_live(self) -> None:
        """Back to now."""
        if self.shown is None:
            self.say("this is now")
        else:
            self._stand_at(None)

    def action_goto(self) -> None:
        """Ask for the number of a step and show it."""
        chronicle = self.follower.chronicle
        if chronicle.first_step is None:
            self.say("no step is recorded yet")
            return

        def answered(step: int | None) -> None:
            if step is not None and self.state.is_recording and step > (chronicle.last_step or 0):
                self._play_up_to(step)
            elif step is not None:
                self._travel(lambda: travel.goto(chronicle, step))

        question = f"Recorded: steps {chronicle.first_step:,} to {chronicle.last_step:,}."
        if self.state.is_recording:
            end = f" to {self.state.newest_step:,}" if self.state.is_all_read else ""
            question = f"Shown: up to step {chronicle.last_step:,}. Later ones{end} are played up to there."
        if chronicle.first_step > 1:
            question += f" {travel.beginning(chronicle).capitalize()}."
        self.app.push_screen(AskNumberScreen("Go to step", question), answered)

    def _play_up_to(self, step: int) -> None:
        """Of a recording, a step that was not played yet."""
        state = self.state
        if state.is_all_read and step > state.newest_step:
            self.say(f"the recording ends with step {state.newest_step:,}")
        else:
            self._run_until(RunUntil("step", step))

    @on(StepChosen)
    def _step_chosen(self, event: StepChosen) -> None:
        self._travel(lambda: travel.goto(self.follower.chronicle, event.step))

    def action_zoom_time(self) -> None:
        """The timeline's next scale."""
        self.say(self.query_one("#timeline", Timeline).zoom())

    def action_blocks(self) -> None:
        """Show the pool of KV blocks."""
        self.app.push_screen(BlocksScreen(self.frame()))

    # -- the engine ---------------------------------------------------------------------------

    def action_steps(self) -> None:
        """Ask how many steps to run."""

        def answered(number: int | None) -> None:
            if number is not None:
                self.shown = None
                self._send(Step(number), f"{number:,} steps, then paused" if number > 1 else "")
                self.draw()

        question = "So many steps, then pause."
        self.app.push_screen(
            AskNumberScreen("Steps", question, most=MOST_STEPS, value=str(STEPS_AT_ONCE)), answered
        )

    def action_until(self) -> None:
        """Ask what to run until."""

        def chosen(what: str | None) -> None:
            if what == "step":
                self._ask_until_step()
            elif what is not None:
                self._run_until(RunUntil(what))

        answers = [Answer((key,), key, UNTIL[what], what) for what, key in _UNTIL_KEYS.items()]
        question = "Runs on, and pauses as soon as it has happened:"
        self.app.push_screen(AskScreen("Run until", question, answers), chosen)

    def _ask_until_step(self) -> None:
        newest = self.state.step

        def answered(step: int | None) -> None:
            if step is not None:
                self._run_until(RunUntil("step", step))

        question = f"The newest is step {newest:,}."
        self.app.push_screen(AskNumberScreen("Run until step", question, least=newest + 1), answered)

    def _run_until(self, command: RunUntil) -> None:
        self.shown = None
        self._send(command, f"runs until {command.words}; space pauses")
        self._waited_for = command.words
        self.draw()

    def _send(self, command: Command, words: str = "") -> None:
        """Any other order to run or pause takes the waiting back."""
        if isinstance(command, Pause | Resume | Step):
            self._waited_for = ""
        super()._send(command, words)
