"""The words of a lesson: where it stands, two sentences, and what the next key brings."""

from __future__ import annotations

from cbtui.lessons.lesson import Lesson
from cbtui.lessons.play import Moment
from cbtui.looks.pieces import Line, join, say, spread, wrap
from cbtui.widgets.header import Header
from cbtui.widgets.lines import LinesView

#: Words are read best in lines that are not too long.
WIDEST = 112


def lesson_header(number: int, count: int, lesson: Lesson, where: str, cells: int) -> Line:
    """`cbtui  Lesson 1 of 6  The wave barrier`, and at the right which model plays and how far it is."""
    brand: Line = ((" cbtui ", "brand"),)
    left = join((brand, ((f"Lesson {number} of {count}", ""),), ((lesson.title, "accent"),)), "   ")
    return spread(left, ((where, "dim"),), cells)


class LessonHeader(Header):
    """The lesson's first line."""

    def show_lesson(self, number: int, count: int, lesson: Lesson, where: str) -> None:
        """Draw where the lesson stands."""
        self.draw(1, lambda _, cells: lesson_header(number, count, lesson, where, cells))


def moment_lines(moment: Moment, words: str, cells: int, height: int) -> list[Line]:
    """The words, and at the bottom of `height` lines the next key."""
    style = "strong" if moment.at_stop else "dim"
    lines = wrap(say((words, style)), min(cells, WIDEST))
    dots = "●" * moment.number + "○" * (moment.count - moment.number)
    then = say(("space ", "accent"), moment.then if moment.at_stop else "be there at once")
    blank: list[Line] = [()] * max(0, height - 1 - len(lines))
    return [*lines, *blank, join((then, ((dots, "dim"),)), "   ")]


class LessonWords(LinesView, can_focus=False):
    """The box above the panels."""

    def show_moment(self, moment: Moment, words: str) -> None:
        """Draw a moment."""
        self.title(f"Stop {moment.number} of {moment.count}" if moment.number else "The scene")
        lines = moment_lines(moment, words, max(20, self.line_width), self.num_visible)
        self.draw(len(lines), lambda y, cells: lines[y] if y < len(lines) else ())
