"""Help: what the panels say, and every key, from the one table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from cbtui.keymap import Keymap, remapped
from cbtui.keys import (
    APP,
    ENGINE,
    FRONT,
    HELP_KEYS,
    LESSON,
    RACE,
    REQUESTS,
    SCREEN_KEYS,
    TIME,
    VIEW,
    bindings,
)
from cbtui.keys_shown import in_help
from cbtui.orders import why_not
from cbtui.screens.in_front import InFront
from engine.live.state import EngineState

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
    "has ended; continuous batching refills a slot the moment it is free."
)
#: What to do first, where modes can be switched.
BEGINNING = " Press d, watch, switch with m, press d again and compare."


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

    def __init__(self, group: str, keymap: Keymap, state: EngineState) -> None:
        super().__init__()
        self._group = group
        self._keymap = keymap
        self._state = state

    def compose(self) -> ComposeResult:
        yield Static(Content.styled(self._group, "bold"))
        yield Pairs(
            in_help(
                self._group, partial(remapped, keymap=self._keymap), left_out=partial(why_not, self._state)
            ),
            "$accent",
        )


def reasons(state: EngineState) -> str:
    """Why some keys can do nothing here, each reason once; empty: all can."""
    found = dict.fromkeys(why for key in SCREEN_KEYS if (why := why_not(state, key)))
    return f"Not here: {'. '.join(why[0].upper() + why[1:] for why in found)}." if found else ""


#: Headings of keys by column, the left one first.
COLUMNS = ((ENGINE, RACE, LESSON), (REQUESTS, TIME, FRONT), (VIEW, APP))
HELP_GROUPS = tuple(group for column in COLUMNS for group in column)
#: From these widths on the columns stand beside each other, or two of them.
WIDE, MIDDLING = 150, 100


class HelpScreen(InFront[None]):
    """Scrolls where the terminal is small.

    Args:
        keymap: the user's.
        state: what is on the screen; keys that can do nothing with it are marked.
    """

    KEYS = (*HELP_KEYS, *InFront.KEYS)
    BINDINGS = bindings(HELP_KEYS)

    def __init__(self, keymap: Keymap, state: EngineState) -> None:
        super().__init__()
        self._keymap = keymap
        self._state = state

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.border_title = Content(" Help ")
            box.border_subtitle = Content(" ↑↓ scroll · Esc closes ")
            beginning = "" if self._state.why_refused("mode") else BEGINNING
            yield Static(Content(INTRODUCTION + beginning), id="help-introduction")
            yield Pairs(GUIDE, "bold")
            with Container(id="help-keys"):
                for groups in COLUMNS:
                    with Vertical():
                        yield from (KeyGroup(group, self._keymap, self._state) for group in groups)
            if why := reasons(self._state):
                yield Static(Content(why), id="help-not-here")
            yield Static(Content(SETTINGS_WORDS), id="help-settings")

    def on_mount(self) -> None:
        self._arrange(self.app.size)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)

    def _arrange(self, size: Size) -> None:
        """As many columns as are readable."""
        self.set_class(size.width >= WIDE, "-wide")
        self.set_class(size.width < MIDDLING, "-narrow")

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        """Scroll by a few lines."""
        self.query_one(VerticalScroll).scroll_relative(y=3 * by, animate=False)
