"""Race, load and lessons: what is more than a key's command. Between the acting base and the main screen.

Their screens are imported when they are asked for: the first picture does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cbtui.screens.acting import ActingScreen
from cbtui.telling.words import count
from engine.live.load import LoadSpec, StartLoad, StopLoad

if TYPE_CHECKING:
    from cbtui.lessons.stage import SetStage
    from cbtui.racing.setup import Pair
    from cbtui.screens.load import Capacity
    from engine.live.guest import Lend
    from engine.racing.race import Entry


class ExcursionScreen(ActingScreen):
    """See the module's words."""

    def action_race(self) -> None:
        """The requests so far, or the tutorial's, in two modes side by side."""
        from cbtui.racing.setup import entries_so_far, which_race
        from cbtui.screens.race import ask_pair

        if self.state.model is None or self.state.status in ("loading", "failed"):
            self.say(self._why_not_yet("a race"))
            return
        entries = entries_so_far(self.follower.ledger)
        if entries:
            which = which_race(entries, self.follower.ledger)
        else:
            entries, which = _tutorial(), "The tutorial's six requests"

        def chosen(pair: Pair | None) -> None:
            if pair is not None:
                self.race(pair, entries)

        question = f"{which} in two modes, step by step in turn. Your own engine stands still meanwhile."
        self.app.push_screen(ask_pair(question), chosen)

    def _why_not_yet(self, what: str) -> str:
        """Why something that needs the model does not begin, and when to ask again."""
        if self.state.status == "failed":
            return f"{what} needs the model, which cannot run (see above)"
        return f"{what} needs the model, which is still loading: ask again when it is there"

    def race(self, pair: Pair, entries: tuple[Entry, ...], arrivals: float | None = None) -> None:
        """Race some requests under the live engine's limits; with `arrivals`, at so many times their pace."""
        from cbtui.screens.race import RaceScreen

        self.app.push_screen(RaceScreen(pair, self.state.config, entries, self._lend, arrivals=arrivals))

    def _lend(self, command: Lend) -> None:
        self.link.commands.put(command)

    def race_when_ready(self) -> None:
        """What `cbtui race` came for, as soon as the model is there."""
        entries = self.options.race
        if entries and self.state.model is not None and self.state.status not in ("loading", "failed"):
            from cbtui.racing.setup import pairs

            self.options = self.options.without_race()
            self.race(pairs()[0], entries, self.options.arrivals)

    # -- generated load -----------------------------------------------------------------------

    #: What the last load was; the next question begins with it.
    load_spec = LoadSpec()

    def action_load(self) -> None:
        """Start a generated load, or stop the one that is on."""
        from cbtui.screens.load import LoadScreen

        state = self.state
        if state.load is not None:
            self._send(StopLoad())
            self.say(f"load stopped after {count(state.load.num_arrived, 'request')}; those that came stay")
            return
        if state.model is None or state.status in ("loading", "failed"):
            self.say(self._why_not_yet("load"))
            return

        def answered(spec: LoadSpec | None) -> None:
            if spec is not None:
                self.load_spec = spec
                self._send(StartLoad(spec))
                self.say(f"load: {spec.rate_per_s:g} a second on average, at random; g stops it")

        self.app.push_screen(LoadScreen(self.load_spec, self._capacity()), answered)

    def _capacity(self) -> Capacity:
        """At the speed limit, or as fast as the last steps were."""
        from cbtui.screens.load import Capacity

        fastest = self.follower.metrics.snapshot().steps_per_s
        speed = self.state.speed
        steps_per_s = fastest if speed is None else min(speed, fastest or speed)
        return Capacity(self.state.config.max_num_seqs, steps_per_s)

    #: Lessons are played on the loaded model; as the last one was.
    _lessons_on_model = False
    #: `options.lesson` is still to come, because its model loads.
    _waits_for_lesson = False

    # -- lessons ------------------------------------------------------------------------------

    def action_lessons(self) -> None:
        """Choose a lesson."""
        from cbtui.screens.lesson import ask_lesson

        def chosen(number: int | None) -> None:
            if number is not None:
                self.lesson(number)
            elif self.options.lesson:
                self.app.exit()

        self.app.push_screen(ask_lesson(has_model=self._borrow is not None), chosen)

    def lesson(self, number: int) -> None:
        """Give a lesson, and what is chosen after it. A program started for a lesson ends with it."""
        from cbtui.screens.lesson import LessonScreen

        def left(following: int | None) -> None:
            self._lessons_on_model = screen.on_model
            if following:
                self.lesson(following)
            elif following == 0:
                self.action_lessons()
            elif self.options.lesson:
                self.app.exit()

        screen = LessonScreen(number, self._borrow, on_model=self._lessons_on_model)
        self.app.push_screen(screen, left)

    def lesson_when_ready(self) -> None:
        """What `cbtui lesson N --model …` came for, as soon as the model is there."""
        if self._waits_for_lesson and self._borrow is not None:
            self._waits_for_lesson = False
            self.lesson(self.options.lesson)

    @property
    def _borrow(self) -> SetStage | None:
        """Puts a lesson's lanes on the loaded model; None: there is none."""
        model = self.state.model
        if model is None or self.state.why_refused("model") or self.state.status in ("loading", "failed"):
            return None
        from cbtui.lessons.stage import LentStage

        return lambda lanes: LentStage(lanes, self._lend, model.name)


def _tutorial() -> tuple[Entry, ...]:
    from engine.workload import tutorial_workload

    return tuple(tutorial_workload())
