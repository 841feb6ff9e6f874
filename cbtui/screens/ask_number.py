"""Asks for one whole number in front of the screen."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Static

from cbtui.keys import NUMBER_KEYS, bindings
from cbtui.screens.in_front import InFront

#: Digits a number may have; no question needs more.
_MOST_DIGITS = 9


class AskNumberScreen(InFront[int | None]):
    """Dismissed with the number, or with None on Esc.

    Args:
        title: what it is about.
        question: a sentence, with the numbers that are possible.
        least, most: the smallest and the largest number; None: as large as one likes.
        value: what stands there at first; the first digit typed replaces it.
    """

    DEFAULT_CSS = """
    AskNumberScreen {
        align: center middle;
        background: $background 60%;
        & Horizontal { height: 1; width: auto; }
        & .mark { width: 2; color: $accent; text-style: bold; }
        & Input { width: 20; border: none; height: 1; padding: 0; background: transparent; }
        & .why { width: auto; max-width: 70; height: auto; margin: 1 0 0 0; color: $foreground 55%; }
        & .why.-error { color: $text-error; }
    }
    """
    AUTO_FOCUS = "Input"
    KEYS = (*NUMBER_KEYS, *InFront.KEYS)
    BINDINGS = bindings(NUMBER_KEYS)

    def __init__(
        self, title: str, question: str, *, least: int = 1, most: int | None = None, value: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._question = question
        self._least, self._most = least, most
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = Content(f" {self._title} ")
            with Horizontal():
                yield Static("›", classes="mark")
                yield Input(
                    self._value, type="integer", select_on_focus=True, compact=True, max_length=_MOST_DIGITS
                )
            yield Static(Content(self._question), classes="why")

    @on(Input.Changed)
    def _changed(self) -> None:
        self._say("")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            number = int(event.value)
        except ValueError:
            self._say("a whole number, or Esc to go back")
            return
        if number < self._least:
            self._say(f"{self._least:,} is the least")
        elif self._most is not None and number > self._most:
            self._say(f"{self._most:,} is the most")
        else:
            self.dismiss(number)

    def _say(self, text: str) -> None:
        why = self.query_one(".why", Static)
        why.set_class(bool(text), "-error")
        why.update(Content(text or self._question))
