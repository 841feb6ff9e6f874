"""One lesson: its words above, the panels they are about below. Its engines are its own; the model is a toy,
or the loaded one, which is borrowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widget import Widget

from cbtui.drawing.gaps import gaps_of
from cbtui.keys import LESSON_KEYS, bindings
from cbtui.lessons.lesson import PanelName
from cbtui.lessons.play import LessonPlay
from cbtui.lessons.scenes import LESSONS
from cbtui.lessons.stage import SetStage
from cbtui.racing.score import Lane
from cbtui.screens.arrangement import key_bar_lines
from cbtui.screens.confirm import Answer, AskScreen
from cbtui.screens.keyed import KeyedScreen
from cbtui.screens.looking import LookingScreen
from cbtui.widgets.gap_plot import GapPlot
from cbtui.widgets.key_bar import KeyBar
from cbtui.widgets.lesson_words import LessonHeader, LessonWords
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from cbtui.widgets.slots import Slots
from cbtui.widgets.timeline import Timeline
from cbtui.widgets.waiting import Waiting

#: Seconds between two rounds on the way to a stop: slow enough to be followed.
ROUND_S = 0.25
_WIDGETS: dict[PanelName, Callable[..., Widget]] = {
    "slots": Slots,
    "waiting": Waiting,
    "row": PackedRow,
    "mask": MaskGrid,
    "timeline": Timeline,
    "gaps": GapPlot,
}
#: Panels of two lanes that stand side by side where the screen is wide.
_BESIDE = ("mask", "row")
#: Lines of the queue at least.
_WAITING_LEAST = 2


class LessonScreen(KeyedScreen, LookingScreen):
    """Dismissed with the number of the lesson to go on with, 0 for the list, None for back.

    Args:
        number: of the lesson, from 1.
        borrow: puts lanes on the loaded model; None: there is none, and the toy plays.
        on_model: begin on the loaded model.
    """

    CSS_PATH = "lesson.tcss"
    KEYS = LESSON_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, number: int, borrow: SetStage | None = None, *, on_model: bool = False) -> None:
        super().__init__()
        self.number = number
        self.lesson = LESSONS[number - 1]
        self._borrow = borrow
        self.on_model = on_model and borrow is not None
        self.play = self._new_play()
        self._timer: Timer | None = None
        #: Whether the next stop is wanted at once, without a pause between rounds.
        self._is_hurried = False

    def _new_play(self) -> LessonPlay:
        if self.on_model and self._borrow is not None:
            return LessonPlay(self.lesson, self._borrow)
        return LessonPlay(self.lesson)

    def compose(self) -> ComposeResult:
        yield LessonHeader(id="lesson-header")
        yield LessonWords(id="lesson-words")
        with Vertical(id="lesson-panels"):
            for name in self.lesson.panels:
                with Container(id=f"group-{name}", classes="group"):
                    for lane in range(len(self.lesson.lanes)):
                        yield _WIDGETS[name](id=f"{name}-{lane}", classes=f"panel {name}")
        yield self.make_key_bar()

    def on_mount(self) -> None:
        for panel in self.query(".panel"):
            panel.can_focus = False
        self._arrange()
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        """However it is left: the model goes back."""
        self.play.stage.close()

    # -- drawing ------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the moment."""
        if not self.is_mounted:
            return
        lanes, moment = self.play.lanes, self.play.moment
        with self.app.batch_update():
            step = max((lane.run.steps for lane in lanes if lane.run), default=0)
            where = f"{self.play.stage.name} · step {step:,}"
            self.query_one(LessonHeader).show_lesson(self.number, len(LESSONS), self.lesson, where)
            self.query_one(LessonWords).show_moment(moment, self._words())
            for name in self.lesson.panels:
                for number, lane in enumerate(lanes):
                    panel = self.query_one(f"#{name}-{number}")
                    panel.set_class(moment.at_stop and moment.panel == name, "-telling")
                    if panel.display:
                        self._show(name, panel, lane, lanes)
            self.show_keys()

    def _words(self) -> str:
        stage = self.play.stage
        if stage.failure:
            return f"The model cannot go on ({stage.failure}). m plays the lesson on the toy, Esc goes back."
        return self.play.words()

    def look(self) -> None:
        """Take in what the borrowed model did."""
        was_at_stop = self.play.moment.at_stop
        if not self.play.look():
            return
        if self.play.moment.at_stop and not was_at_stop:
            self._stop_timer()
            self._there()
            return
        self.draw()
        if self._is_hurried and not self.play.is_under_way:
            self._move()

    def _show(self, name: PanelName, panel: Any, lane: Lane, lanes: list[Lane]) -> None:
        if len(lanes) > 1:
            panel.title_prefix = f"{lane.name} · "
        if name == "timeline":
            steps = max((one.run.steps for one in lanes if one.run), default=0)
            panel.draw_run(lane.frame.lanes, lane.frame.badges, steps=steps)
        elif name == "gaps":
            gaps = [gap for one in lanes for story in one.stories[:1] for gap in gaps_of(story)]
            panel.show_gaps(lane.frame, max(gaps, default=0.0))
        else:
            panel.show(lane.frame)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self._arrange()
        self.call_after_refresh(self.draw)

    def _arrange(self) -> None:
        """Heights; where not all panels fit, those the words are about come first."""
        size = self.app.size
        is_small = size.height < 34 or size.width < 100
        self.set_class(is_small, "-small")
        words = 6 if is_small else 7  # four lines of words and the key; or three, a blank one and the key
        self.query_one(LessonWords).styles.height = words
        keys = key_bar_lines(size)
        self.query_one(KeyBar).styles.height = keys
        room = size.height - 1 - keys - words
        num_lanes = len(self.lesson.lanes)
        telling = self.play.moment.panel
        order = sorted(self.lesson.panels, key=lambda name: name != telling)
        shown: dict[str, int] = {}
        for name in order:
            beside = num_lanes > 1 and name in _BESIDE
            rows = 1 if beside else num_lanes
            least = self._height(name, is_small=is_small)
            if room >= least * rows or not shown:
                shown[name] = least
                room -= least * rows
            self.query_one(f"#group-{name}").styles.layout = "horizontal" if beside else "vertical"
        if "waiting" in shown:
            queue = max(len(lane.entries) for lane in self.lesson.lanes)
            shown["waiting"] += max(0, min(queue - _WAITING_LEAST, room // num_lanes))
        for name in self.lesson.panels:
            self.query_one(f"#group-{name}").display = name in shown
            for number in range(num_lanes):
                panel = self.query_one(f"#{name}-{number}")
                grows = name in ("mask", "gaps")
                panel.styles.height = "1fr" if grows else shown.get(name, 0)
            self.query_one(f"#group-{name}").styles.height = "1fr" if name in ("mask", "gaps") else "auto"

    def _height(self, name: PanelName, *, is_small: bool) -> int:
        slots = max(lane.config.max_num_seqs for lane in self.lesson.lanes)
        edge = 1 if is_small else 2
        match name:
            case "slots":
                return slots + edge
            case "timeline":
                return slots + edge + (1 if is_small else 2)
            case "waiting":
                return _WAITING_LEAST + edge
            case "row":
                return 5 + edge
            case "mask":
                return 5 + edge
            case _:
                return 4 + edge

    # -- moving -------------------------------------------------------------------------------

    def action_go(self) -> None:
        """Set off to the next stop; on the way: be there at once; after the last: the next lesson."""
        if self._timer is not None:
            self._hurry()
        elif self.play.is_over:
            self.dismiss(self.number + 1 if self.number < len(LESSONS) else 0)
        else:
            self.play.go()
            self._timer = self.set_interval(ROUND_S, self._move)
            self._move()

    def _hurry(self) -> None:
        if self.play.stage.is_instant:
            self._stop_timer()
            self.play.run_to_stop()
            self._there()
        else:
            self._is_hurried = True

    def action_step(self) -> None:
        """A round towards the next stop, and wait."""
        self._stop_timer()
        if not self.play.is_over:
            self.play.go()
            self.play.round()
            self._there()

    def _move(self) -> None:
        if not self.play.stage.is_settled and not self.play.is_under_way:
            return  # the model is still being made ready
        self.play.round()
        if self.play.moment.at_stop:
            self._stop_timer()
            self._there()
        else:
            self.draw()

    def _there(self) -> None:
        self._arrange()
        self.draw()
        self.call_after_refresh(self.draw)

    def _stop_timer(self) -> None:
        self._is_hurried = False
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def action_again(self) -> None:
        """From the start, on the same model."""
        self._stop_timer()
        self.play.stage.close()
        self.play = self._new_play()
        self._there()

    def action_model(self) -> None:
        """The same lesson on the other model."""
        self.on_model = not self.on_model
        self.action_again()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another model only where one is loaded."""
        return self._borrow is not None if action == "model" else True

    def action_other(self, by: int) -> None:
        """The lesson before or after, if there is one."""
        if 1 <= self.number + by <= len(LESSONS):
            self.dismiss(self.number + by)

    def action_list(self) -> None:
        self.dismiss(0)

    def action_leave(self) -> None:
        self.dismiss(None)


def ask_lesson(*, has_model: bool = False) -> AskScreen[int]:
    """The screen that asks for a lesson; dismissed with its number.

    Args:
        has_model: a lesson can be played on the loaded model, too.
    """
    answers = [
        Answer((str(n), *(("enter", "l") if n == 1 else ())), str(n), one.title, n, one.question)
        for n, one in enumerate(LESSONS, 1)
    ]
    words = "A minute each, on a toy model: your own engine is not touched."
    if has_model:
        words = "A minute each, on a toy model; in a lesson m plays it on your own. Your engine stands still."
    return AskScreen("Lessons", words, answers)
