"""Help: what the panels say, and every key, from the one table of keys."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from cbtui.keys import APP, ENGINE, REQUESTS, VIEW, in_help

#: How to read the screen, a panel a line.
GUIDE = (
    ("Slots", "the requests that run, one lane each: phase, progress, the text so far"),
    ("Waiting", "the queue, and why each request is still in it"),
    ("Packed row", "the very tokens that went through the model in the shown step"),
    ("Mask", "rows are those tokens, columns what each may look back at: █ new  ▒ cached  · blocked"),
    ("Timeline", "a lane a slot, a letter a request: reversed prefill  ▄ decode  ░ dead  · idle"),
    ("Counters", "occupancy: slots that did useful work · padding and dead: work that was thrown away"),
    ("What happened", "the step in words; when all is done, what it cost"),
)
INTRODUCTION = (
    "Every step is one pass through the model. Static batching holds a wave of requests until its longest "
    "has ended; continuous batching refills a slot the moment it is free. Press d, watch, switch with m, "
    "press d again and compare."
)


def keys_text(group: str) -> Content:
    """A group's keys, one a line."""
    keys = in_help(group)
    width = max(len(shown) for shown, _ in keys)
    lines = [Content.styled(group, "bold")]
    lines += [Content.assemble((shown.ljust(width), "$accent"), "  ", words) for shown, words in keys]
    return Content("\n").join(lines)


def guide_text() -> Content:
    """What each panel says."""
    width = max(len(name) for name, _ in GUIDE)
    lines = [Content(INTRODUCTION), Content("")]
    lines += [Content.assemble((name.ljust(width), "bold"), "  ", words) for name, words in GUIDE]
    return Content("\n").join(lines)


HELP_GROUPS = (ENGINE, REQUESTS, VIEW, APP)


class HelpScreen(ModalScreen[None]):
    """Scrolls where the terminal is small."""

    BINDINGS = [
        Binding("escape,q,question_mark,f1,enter", "close", "close", tooltip="Close help", id="help.close"),
        Binding("up,k", "scroll(-1)", show=False, id="help.up"),
        Binding("down,j,space", "scroll(1)", show=False, id="help.down"),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.border_title = Content(" Help ")
            box.border_subtitle = Content(" Esc closes ")
            yield Static(guide_text(), id="help-guide")
            with Horizontal(id="help-keys"):
                with Vertical():
                    yield Static(keys_text(ENGINE))
                    yield Static(keys_text(VIEW))
                with Vertical():
                    yield Static(keys_text(REQUESTS))
                    yield Static(keys_text(APP))

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        """Scroll by a few lines."""
        self.query_one(VerticalScroll).scroll_relative(y=3 * by, animate=False)
