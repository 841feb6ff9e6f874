"""Asks one question in front of the screen; every answer has a key.

`answer_texts` is pure: what an answer is about stands beside it, below it where there is less room, and is
left away before an answer is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from cbtui.screens.in_front import InFront

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """One way to answer.

    Attributes:
        keys: Textual's names of the keys that give it.
        shown: how the key is written.
        words: the answer.
        value: what the screen is dismissed with.
        about: more about it; empty: the words say it all.
    """

    keys: tuple[str, ...]
    shown: str
    words: str
    value: T
    about: str = ""


def answer_texts(answers: Sequence[Answer[Any]], cells: int, lines: int) -> list[Content]:
    """One text an answer, in `cells` cells; all of them in `lines` lines if they can."""
    key = max(len(answer.shown) for answer in answers)
    words = max(len(answer.words) for answer in answers if answer.about) if _any_about(answers) else 0
    room = cells - key - 2

    def text(answer: Answer[Any], about: str) -> Content:
        return Content.assemble((answer.shown.ljust(key), "$accent bold"), "  ", answer.words, (about, "dim"))

    if all(words + 2 + len(answer.about) <= room for answer in answers if answer.about):
        return [
            text(one, (" " * (words - len(one.words)) + "  " + one.about) if one.about else "")
            for one in answers
        ]
    indent = "\n" + " " * (key + 2)
    below = ["".join(indent + line for line in wrap(one.about, max(8, room))) for one in answers]
    if sum(1 + one.count("\n") for one in below) > lines:
        below = [""] * len(answers)
    return [text(one, about) for one, about in zip(answers, below, strict=True)]


def _any_about(answers: Sequence[Answer[Any]]) -> bool:
    return any(answer.about for answer in answers)


class AnswerLine(Static):
    """An answer that can be clicked."""

    ALLOW_SELECT = False

    def __init__(self, answer: Answer[Any]) -> None:
        super().__init__(classes="answer")
        self.answer = answer

    def on_click(self) -> None:
        screen = self.screen
        assert isinstance(screen, AskScreen)
        screen.dismiss(self.answer.value)


class AskScreen(InFront[T | None], Generic[T]):
    """A question with answers; Esc is no answer (None).

    Args:
        title: what it is about.
        question: one or two sentences.
        answers: in the order shown.
    """

    def __init__(self, title: str, question: str, answers: Sequence[Answer[T]]) -> None:
        super().__init__()
        self._title = title
        self._question = question
        self._answers: tuple[Answer[T] | Answer[None], ...] = (*answers, _KEEP)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = Content(f" {self._title} ")
            yield Static(classes="question")
            for answer in self._answers:
                yield AnswerLine(answer)

    def on_mount(self) -> None:
        self._arrange(self.app.size)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)

    def _arrange(self, size: Size) -> None:
        """Break the texts for a terminal of that size, of which the box takes nine tenths."""
        cells, lines = size.width * 9 // 10 - 6, size.height * 9 // 10 - 5
        question = wrap(self._question, max(8, min(80, cells)))
        self.query_one(".question", Static).update(Content("\n".join(question)))
        texts = answer_texts(self._answers, cells, lines - len(question))
        for line, text in zip(self.query(AnswerLine), texts, strict=True):
            line.update(text)

    def on_key(self, event: events.Key) -> None:
        """Answer by key. Other keys answer nothing, so a slip decides nothing."""
        for answer in self._answers:
            if event.key in answer.keys:
                event.stop()
                self.dismiss(answer.value)
                return


_KEEP: Answer[None] = Answer(("escape", "n"), "Esc", "no, go back", None)


def yes(words: str, *keys: str) -> Answer[bool]:
    """The answer that goes ahead: `y`, Enter, and the key that asked."""
    return Answer(("y", "enter", *keys), "y", words, True)
