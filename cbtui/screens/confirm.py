"""Asks one question in front of the screen; every answer has a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """One way to answer: `keys` (Textual's names) that give it, how the key is written, words, value."""

    keys: tuple[str, ...]
    shown: str
    words: str
    value: T


class AnswerLine(Static):
    """An answer that can be clicked."""

    ALLOW_SELECT = False

    def __init__(self, answer: Answer[Any], width: int) -> None:
        super().__init__(
            Content.assemble((answer.shown.ljust(width), "$accent bold"), "  ", answer.words),
            classes="answer",
        )
        self.answer = answer

    def on_click(self) -> None:
        screen = self.screen
        assert isinstance(screen, AskScreen)
        screen.dismiss(self.answer.value)


class AskScreen(ModalScreen[T | None], Generic[T]):
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
        width = max(len(a.shown) for a in self._answers)
        with Vertical(classes="box") as box:
            box.border_title = Content(f" {self._title} ")
            yield Static(Content(self._question), classes="question")
            for answer in self._answers:
                yield AnswerLine(answer, width)

    def on_key(self, event: events.Key) -> None:
        """Answer by key. Other keys do nothing, so a slip decides nothing."""
        for answer in self._answers:
            if event.key in answer.keys:
                event.stop()
                self.dismiss(answer.value)
                return


_KEEP: Answer[None] = Answer(("escape", "n"), "Esc", "no, go back", None)


def yes(words: str, *keys: str) -> Answer[bool]:
    """The answer that goes ahead: `y`, Enter, and the key that asked."""
    return Answer(("y", "enter", *keys), "y", words, True)
