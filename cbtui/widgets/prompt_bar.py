"""Where prompts are typed: text, max tokens, and how they will be sampled.

Checks what can be checked here and says at once what is wrong, in its own border; the text stays until it
was taken. Knows nothing of engines: it posts `PromptsEntered`, and the screen does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static

from cbtui.keys import LEAVE_KEYS, PROMPT_KEYS, bindings
from cbtui.looks.tokens import cell_width
from cbtui.telling.first_prompts import examples

PLACEHOLDER = "type a prompt · Enter"
#: The same where prompts go as they stand.
PLACEHOLDER_RAW = "type a prompt to be continued · Enter"
#: Shown for a line break inside a prompt; the value keeps the break itself.
LINE_BREAK = "␤"
#: Seconds an answer to a key stays: long enough to be read.
NOTICE_S = 8.0


@dataclass
class PromptsEntered(Message):
    """Prompts to submit together, and the output tokens each may make."""

    prompts: tuple[str, ...]
    max_tokens: int


@dataclass
class LinesPasted(Message):
    """Several lines were pasted. `text` is the whole prompt they would make."""

    text: str


class PromptLeft(Message):
    """Escape: single keys shall work."""


class ChatClicked(Message):
    """The chat chip was clicked."""


class PromptInput(Input):
    """The prompt's line. Keeps earlier prompts, examples before them, and line breaks that were pasted."""

    KEYS = PROMPT_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True, placeholder=PLACEHOLDER, select_on_focus=False)
        self.cursor_blink = False
        self._examples: tuple[str, ...] = ()
        self._sent: list[str] = []
        self._place = 0
        self._draft = ""

    @property
    def _earlier(self) -> tuple[str, ...]:
        return (*(one for one in self._examples if one not in self._sent), *self._sent)

    def suit(self, *, is_chat: bool) -> None:
        """Ask for what suits the way prompts are sent: a message, or a text to be continued."""
        self.placeholder = PLACEHOLDER if is_chat else PLACEHOLDER_RAW
        # The first one is the nearest.
        self._examples = examples(is_chat=is_chat)[::-1]
        self._place = len(self._earlier)

    @property
    def _value(self) -> Text:
        shown = self.value.replace("\n", LINE_BREAK).replace("\t", " ")
        return Text(shown, no_wrap=True, overflow="ignore", end="")

    def remember(self, prompt: str) -> None:
        """Keep a prompt that was sent, for the arrow keys."""
        if not self._sent or self._sent[-1] != prompt:
            self._sent.append(prompt)
        self._place = len(self._earlier)

    def put(self, text: str) -> None:
        """Replace the text; the cursor stands behind it."""
        self.value = text
        self.cursor_position = len(text)

    def action_earlier(self, by: int) -> None:
        """Walk through earlier prompts; past the newest one stands what was being typed."""
        place = min(len(self._earlier), max(0, self._place + by))
        if place == self._place:
            return
        if self._place == len(self._earlier):
            self._draft = self.value
        self._place = place
        self.put(self._earlier[place] if place < len(self._earlier) else self._draft)

    def action_leave(self) -> None:
        """Give the keyboard to the panels."""
        self.post_message(PromptLeft())

    def _on_paste(self, event: events.Paste) -> None:
        """Take a paste whole. Textual's own handler keeps the first line only."""
        event.prevent_default()
        event.stop()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        if not text:
            return
        start, end = sorted(self.selection)
        if "\n" in text:
            self.post_message(LinesPasted(self.value[:start] + text + self.value[end:]))
        else:
            self.replace(text, start, end)


class MaxTokensInput(Input):
    """How many tokens a prompt may make."""

    KEYS = LEAVE_KEYS
    BINDINGS = bindings(KEYS)

    def __init__(self, value: int, *, id: str | None = None) -> None:
        super().__init__(str(value), id=id, compact=True, max_length=7, select_on_focus=True)
        self.cursor_blink = False

    def action_leave(self) -> None:
        """Give the keyboard to the panels."""
        self.post_message(PromptLeft())


class Chip(Static):
    """A word that says how prompts are sent; the chat one can be clicked."""

    ALLOW_SELECT = False

    def on_click(self) -> None:
        if self.id == "chat-chip":
            self.post_message(ChatClicked())


def max_tokens_of(text: str, most: int) -> int:
    """The number in the max tokens field.

    Raises:
        ValueError: it is none, or out of range; one sentence.
    """
    cleaned = text.strip().replace(",", "").replace("_", "")
    if not (cleaned.isascii() and cleaned.isdigit()) or not 1 <= int(cleaned) <= most:
        said = f"not {text.strip()}" if text.strip() else "and it is empty"
        raise ValueError(f"max tokens must be a whole number from 1 to {most:,}, {said}")
    return int(cleaned)


class PromptBar(Horizontal):
    """The prompt's row. Its border says what was wrong, or what a key just did.

    Args:
        max_tokens: at the start.
        most: the largest number of output tokens that makes sense now.
        sampling: how the tokens of a typed prompt are chosen, in a few words.
    """

    def __init__(
        self, max_tokens: int, most: Callable[[], int], *, sampling: str = "greedy", id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._most = most
        self._notice: tuple[str, bool] = ("", False)
        self._was_put_back = ""
        self._is_chat: bool | None = None
        self._expiry: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static("›", id="prompt-mark")
        yield PromptInput(id="prompt-text")
        yield Static("max tokens", id="max-label")
        yield MaxTokensInput(self._max_tokens, id="max-tokens")
        yield Chip(self._sampling, id="sampling-chip")
        yield Chip("chat", id="chat-chip")

    # -- for the screen -----------------------------------------------------------------------

    @property
    def line(self) -> PromptInput:
        """The text field."""
        return self.query_one(PromptInput)

    @property
    def max_field(self) -> MaxTokensInput:
        """The max tokens field."""
        return self.query_one(MaxTokensInput)

    @property
    def notice(self) -> str:
        """What the border says now."""
        return self._notice[0]

    def say(self, text: str = "", *, is_error: bool = False) -> None:
        """Say something in the border, until the next key; nothing takes it back. What is no error goes by
        itself, before it is no longer so."""
        if (text, is_error) == self._notice:
            return
        self._notice = (text, is_error)
        if self._expiry is not None:
            self._expiry.stop()
        self._expiry = self.set_timer(NOTICE_S, self.say) if text and not is_error else None
        self.set_class(is_error, "-error")
        self.border_title = Content(f" {text} " if text else "")
        if cell_width(text) > self.size.width - 4 > 0:
            # The border would cut it off; nothing that went wrong is said by halves.
            self.app.notify(text, markup=False, severity="error" if is_error else "information")

    def show_chat(self, is_on: bool, is_possible: bool) -> None:
        """Say whether prompts go through the chat template."""
        chip = self.query_one("#chat-chip", Chip)
        is_chat = is_on and is_possible
        if self._is_chat != is_chat:
            self._is_chat = is_chat
            chip.update(Content("chat" if is_chat else "raw"), layout=False)
            self.line.suit(is_chat=is_chat)
        chip.tooltip = (
            "Prompts go through the model's chat template, or as they stand: c"
            if is_possible
            else "This model has no chat template: prompts go as they stand"
        )

    def set_brief(self, is_brief: bool) -> None:
        """Say `max` for `max tokens`, where there is little room."""
        self.query_one("#max-label", Static).update("max" if is_brief else "max tokens")

    def put_back(self, text: str) -> None:
        """Bring a refused prompt back, unless another is being typed."""
        if not self.line.value:
            self._was_put_back = text
            self.line.put(text)

    def enter(self, prompts: tuple[str, ...]) -> bool:
        """Check and post prompts; whether they were taken."""
        try:
            max_tokens = max_tokens_of(self.max_field.value, self._most())
        except ValueError as exc:
            self.say(str(exc), is_error=True)
            return False
        for prompt in prompts:
            self.line.remember(prompt)
        self.line.put("")
        self.say()
        self.post_message(PromptsEntered(prompts, max_tokens))
        return True

    # -- events -------------------------------------------------------------------------------

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        text = self.line.value
        if text.strip():
            # The next prompt is typed where this one was, not into the number behind it.
            if self.enter((text,)):
                self.line.focus()
        elif isinstance(event.input, MaxTokensInput):
            self.line.focus()
        else:
            self.say("the prompt is empty: type some text first", is_error=True)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        try:
            max_tokens_of(self.max_field.value, self._most())
        except ValueError as exc:
            self.say(str(exc), is_error=True)
        else:
            # Sending empties the field and a refusal fills it again: no reason to take an answer back.
            if event.value not in ("", self._was_put_back):
                self.say()
