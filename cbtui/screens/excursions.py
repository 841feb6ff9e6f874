"""What leads away from the live engine and back: the race. Between the acting base and the main screen."""

from __future__ import annotations

from cbtui.race_setup import Pair, entries_so_far, pairs
from cbtui.screens.acting import ActingScreen
from cbtui.screens.race import RaceScreen, ask_pair
from cbtui.words import count
from engine.config import EngineConfig
from engine.guest import Lend
from engine.race import Entry


class ExcursionScreen(ActingScreen):
    """See the module's words."""

    def action_race(self) -> None:
        """The requests so far, or the tutorial's, in two modes side by side."""
        if self.state.model is None or self.state.status in ("loading", "failed"):
            self.say("a race needs the model: it starts when that is there")
            return
        entries = entries_so_far(self.follower.ledger)
        if entries:
            which = f"The {count(len(entries), 'request')} so far"
        else:
            entries, which = _tutorial(), "The tutorial's six requests"

        def chosen(pair: Pair | None) -> None:
            if pair is not None:
                self.race(pair, entries)

        question = f"{which} in two modes, step by step in turn. Your own engine stands still meanwhile."
        self.app.push_screen(ask_pair(question), chosen)

    def race(self, pair: Pair, entries: tuple[Entry, ...]) -> None:
        """Race some requests under the live engine's limits."""
        config: EngineConfig = self.state.config
        self.app.push_screen(RaceScreen(pair, config, entries, self._lend))

    def _lend(self, command: Lend) -> None:
        self.link.commands.put(command)  # type: ignore[arg-type]  # the loop's own, not a screen's command

    def race_when_ready(self) -> None:
        """What `cbtui race` came for, as soon as the model is there."""
        entries = self.options.race
        if entries and self.state.model is not None and self.state.status not in ("loading", "failed"):
            self.options = self.options.without_race()
            self.race(pairs()[0], entries)


def _tutorial() -> tuple[Entry, ...]:
    from engine.workload import tutorial_workload

    return tuple(tutorial_workload())
