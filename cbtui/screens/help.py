"""Help: what the panels say, and every key, from the one table of keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from cbtui.keymap import Keymap, remapped
from cbtui.keys import APP, ENGINE, REQUESTS, TIME, VIEW, in_help

#: How to read the screen, a panel a line.
GUIDE = (
    ("Slots", "the requests that run, one lane each: phase, progress, the text so far"),
    ("Waiting", "the queue, and why each request is still in it"),
    ("Packed row", "the very tokens that went through the model in the shown step"),
    ("Mask", "rows are those tokens, columns what each may look back at: █ new  ▒ cached  · blocked"),
    ("Timeline", "a lane a slot: A prefill  ▄ decode  ░ dead  · idle. A click on a step shows that step"),
    ("Counters", "occupancy: slots that did useful work · padding and dead: work that was thrown away"),
    ("What happened", "the step in words; when all is done, what it cost"),
)
INTRODUCTION = (
    "Every step is one pass through the model. Static batching holds a wave of requests until its longest "
    "has ended; continuous batching refills a slot the moment it is free. Press d, watch, switch with m, "
    "press d again and compare."
)


SETTINGS_WORDS = (
    "Theme, speed, slots, how long the history is, and every key can be set in a file: `cbtui settings` says "
    "where it is and prints one to begin with. ctrl+p has the themes, too."
)


class Pairs(Container):
    """Two columns, what wraps stays in its own: keys or names, and a sentence each."""

    def __init__(self, pairs: Sequence[tuple[str, str]], style: str) -> None:
        super().__init__()
        self._pairs = pairs
        self._style = style
        self.styles.grid_columns = f"{max(len(name) for name, _ in pairs) + 2} 1fr"

    def compose(self) -> ComposeResult:
        for name, words in self._pairs:
            yield Static(Content.styled(name, self._style))
            yield Static(Content(words))


class KeyGroup(Vertical):
    """One heading of keys."""

    def __init__(self, group: str, keymap: Keymap) -> None:
        super().__init__()
        self._group = group
        self._keymap = keymap

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(self._group, "bold"))
        yield Pairs(in_help(self._group, lambda key: remapped(key, self._keymap)), "$accent")


HELP_GROUPS = (ENGINE, APP, REQUESTS, TIME, VIEW)


class HelpScreen(ModalScreen[None]):
    """Scrolls where the terminal is small."""

    BINDINGS = [
        Binding("escape,q,question_mark,f1,enter", "close", "close", tooltip="Close help", id="help.close"),
        Binding("up,k", "scroll(-1)", show=False, id="help.up"),
        Binding("down,j,space", "scroll(1)", show=False, id="help.down"),
    ]

    def __init__(self, keymap: Keymap) -> None:
        super().__init__()
        self._keymap = keymap

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.border_title = Content(" Help ")
            box.border_subtitle = Content(" Esc closes ")
            yield Static(Content(INTRODUCTION), id="help-introduction")
            yield Pairs(GUIDE, "bold")
            with Horizontal(id="help-keys"):
                for groups in (HELP_GROUPS[:2], HELP_GROUPS[2:]):
                    with Vertical():
                        yield from (KeyGroup(group, self._keymap) for group in groups)
            yield Static(Content(SETTINGS_WORDS), id="help-settings")

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        """Scroll by a few lines."""
        self.query_one(VerticalScroll).scroll_relative(y=3 * by, animate=False)
