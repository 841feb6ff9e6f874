"""Every key, once: bindings, the bottom line, help, palette and a user's keymap are made from this table.

Owns names and words; what an action does is the screen's business, which of them help and the bottom line
name `keys_shown.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.binding import Binding, BindingType

ENGINE, REQUESTS, TIME, VIEW, APP = "Engine", "Requests", "Time", "View", "Program"
RACE, LESSON, FRONT = "In a race", "In a lesson", "In what stands in front"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing a key does.

    Attributes:
        id: name in a user's keymap.
        keys: Textual's names of the keys, comma-separated.
        action: name of the screen's or app's action.
        label: a word or two for the bottom line; empty: it is not named there.
        label_paused: the same while the engine is paused, where that differs.
        tooltip: a sentence for the palette, and for help where `help` does not say.
        help: what help says of it and of the keys that join it; empty: another line covers it.
        group: heading in help.
        shown: how the key is written; empty: it works only while typing.
        typing: the key that does the same while the prompt has focus.
        rank: the bottom line drops the highest first where it is short of room.
        joins: stands right beside the key before it, under the same label and the same line of help.
        priority: works whatever has focus.
        asks: what it asks for, or shows, that a server or a recording may not have: see `orders.why_not`.
    """

    id: str
    keys: str
    action: str
    label: str = ""
    label_paused: str = ""
    tooltip: str
    help: str | None = None
    group: str
    shown: str = ""
    typing: str = ""
    rank: int = 5
    joins: bool = False
    priority: bool = False
    asks: str = ""

    def binding(self) -> Binding:
        """For a screen's or an app's `BINDINGS`."""
        return Binding(
            self.keys,
            self.action,
            self.label or self.tooltip,
            show=bool(self.label),
            tooltip=self.tooltip,
            id=self.id,
            priority=self.priority,
        )


LIVE_KEY = Key(id="view.live", keys="full_stop", action="live", label="live", group=TIME, shown=".", rank=0,
               tooltip="Back to now")  # fmt: skip

#: Those that move the view in time; they work in front of the main screen too.
TRAVEL_KEYS: tuple[Key, ...] = (
    Key(id="view.back", keys="left_square_bracket", action="walk(-1)", label="back/forth", group=TIME,
        shown="[", rank=5, tooltip="One recorded step back",
        help="One recorded step back, or forth"),
    Key(id="view.forth", keys="right_square_bracket", action="walk(1)", label="back/forth", group=TIME,
        shown="]", rank=5, joins=True, tooltip="One step forth; after the last one: now", help=""),
    Key(id="view.event_back", keys="left_curly_bracket", action="event(-1)", group=TIME, shown="{",
        tooltip="Back to where something happened",
        help="To where something happened"),
    Key(id="view.event_forth", keys="right_curly_bracket", action="event(1)", group=TIME, shown="}",
        tooltip="Forth to where something happened", joins=True, help=""),
    Key(id="view.first", keys="0", action="first", group=TIME, shown="0", tooltip="The first recorded step"),
    Key(id="view.goto", keys="colon", action="goto", group=TIME, shown=":",
        tooltip="Go to a step by its number"),
    LIVE_KEY,
)  # fmt: skip

#: Those that must reach a running engine whatever stands in front.
ENGINE_KEYS: tuple[Key, ...] = (
    Key(id="engine.pause", keys="space,f5", action="pause", label="pause", label_paused="run", group=ENGINE,
        shown="space", typing="F5", rank=1, tooltip="Pause the engine, or let it run on",
        help="Pause the engine, or run on"),
    Key(id="engine.step", keys="s,f8", action="step", label="step", group=ENGINE, shown="s", typing="F8",
        rank=1, tooltip="One step, then stay paused"),
)  # fmt: skip

SCREEN_KEYS: tuple[Key, ...] = (
    Key(id="prompt.focus", keys="slash", action="prompt", label="prompt", group=REQUESTS, shown="/", rank=0,
        tooltip="Type a prompt", asks="prompts"),
    *ENGINE_KEYS,
    Key(id="engine.steps", keys="S,upper_s", action="steps", group=ENGINE, shown="S",
        tooltip="So many steps, then pause"),
    Key(id="engine.until", keys="u", action="until", group=ENGINE, shown="u",
        tooltip="Run until something happens"),
    Key(id="engine.mode", keys="m,f6", action="mode", label="mode", group=ENGINE, shown="m", typing="F6",
        rank=1, tooltip="Switch between static and continuous batching",
        help="Static or continuous batching", asks="mode"),
    Key(id="engine.modes", keys="M,upper_m", action="modes", group=ENGINE, shown="M",
        tooltip="Choose one of all modes", asks="mode"),
    Key(id="engine.settings", keys="o", action="settings", label="settings", group=ENGINE, shown="o", rank=8,
        tooltip="Live settings: budget, slots, mode, policy, prefix caching, speed",
        help="Live settings: budget, policy, …", asks="limits"),
    Key(id="engine.fewer_slots", keys="minus", action="slots(-1)", label="slots", group=ENGINE, shown="-",
        rank=3, tooltip="One slot fewer",
        help="One slot fewer, or more", asks="limits"),
    Key(id="engine.more_slots", keys="plus", action="slots(1)", label="slots", group=ENGINE, shown="+",
        rank=3, joins=True, tooltip="One slot more", help="", asks="limits"),
    Key(id="engine.slower", keys="less_than_sign", action="speed(-1)", label="speed", group=ENGINE, shown="<",
        rank=4, tooltip="Half as many steps a second",
        help="Half or twice as many steps/s", asks="pace"),
    Key(id="engine.faster", keys="greater_than_sign", action="speed(1)", label="speed", group=ENGINE,
        shown=">", rank=4, joins=True, tooltip="Twice as many steps a second", help="", asks="pace"),
    Key(id="request.above", keys="up", action="select(-1)", label="select", group=REQUESTS, shown="↑",
        rank=6, tooltip="Select the request above",
        help="Select the request above, or below"),
    Key(id="request.below", keys="down", action="select(1)", label="select", group=REQUESTS, shown="↓",
        rank=6, joins=True, tooltip="Select the request below", help=""),
    Key(id="request.text", keys="enter", action="open", label="text", group=REQUESTS, shown="enter", rank=7,
        tooltip="All about the selected request",
        help="All about the request"),
    Key(id="request.cancel", keys="x", action="cancel", label="cancel", group=REQUESTS, shown="x", rank=6,
        tooltip="Cancel the selected request", asks="cancel"),
    Key(id="request.demo", keys="d", action="demo", label="demo", group=REQUESTS, shown="d", rank=2,
        tooltip="Submit the tutorial's six requests",
        help="The tutorial's six requests", asks="prompts"),
    Key(id="request.chat", keys="c", action="chat", label="chat/raw", group=REQUESTS, shown="c", rank=8,
        tooltip="Chat template, or plain continuation", asks="prompts"),
    Key(id="view.cells", keys="z", action="cells(1)", label="mask cells", group=VIEW, shown="z", rank=7,
        tooltip="The mask's true cells, then smaller ones until all is seen, then folded",
        help="The mask's next scale, or the last"),
    Key(id="view.cells_back", keys="Z,upper_z", action="cells(-1)", group=VIEW, shown="Z",
        tooltip="The same, backwards", joins=True, help=""),
    Key(id="view.layers", keys="w", action="layers", group=VIEW, shown="w",
        tooltip="The mask in the model's other layers, where some have a sliding window",
        help="The mask in layers of another kind"),
    Key(id="engine.race", keys="r", action="race", label="race", group=ENGINE, shown="r", rank=3,
        tooltip="The same requests in two modes, side by side",
        help="Race: two modes side by side", asks="model"),
    Key(id="view.lessons", keys="l", action="lessons", label="lessons", group=APP, shown="l", rank=5,
        tooltip="Six short lessons"),
    Key(id="request.load", keys="g", action="load", label="load", group=REQUESTS, shown="g", rank=6,
        tooltip="Start generated load, or stop it",
        help="Generated load, or its end", asks="load"),
    *TRAVEL_KEYS,
    Key(id="view.blocks", keys="k", action="blocks", label="KV", group=VIEW, shown="k", rank=8,
        tooltip="KV blocks: who owns which", asks="blocks"),
    Key(id="view.zoom_time", keys="t", action="zoom_time", label="timeline", group=VIEW, shown="t", rank=8,
        tooltip="The timeline's scale: all, or its last steps",
        help="The timeline's scale"),
    Key(id="view.tab_1", keys="1", action="tab(1)", group=VIEW, shown="1–5",
        tooltip="The first tab, at small sizes", help="Choose a tab, at small sizes"),
    *(Key(id=f"view.tab_{n}", keys=str(n), action=f"tab({n})", group=VIEW, tooltip=f"Tab {n}, at small sizes",
          help="") for n in range(2, 6)),
    Key(id="engine.retry", keys="R,upper_r", action="retry", group=ENGINE, shown="R",
        tooltip="Load the model again after a failure",
        help="Failed model: load it again"),
    Key(id="request.copy", keys="y", action="copy", group=REQUESTS, shown="y",
        tooltip="Copy the selected request's output; after a failure, the command it suggests",
        help="Copy the request's output"),
)  # fmt: skip

#: The prompt's own.
PROMPT_KEYS: tuple[Key, ...] = (
    Key(id="prompt.leave", keys="escape", action="leave", label="single keys", group=APP, typing="Esc",
        rank=0, tooltip="Leave the prompt, so that single keys work",
        help="Leave the prompt: single keys"),
    Key(id="prompt.earlier", keys="up", action="earlier(-1)", label="earlier prompts", group=REQUESTS,
        typing="↑", rank=4, tooltip="An earlier prompt",
        help="Typing: earlier prompts, examples"),
    Key(id="prompt.later", keys="down", action="earlier(1)", label="earlier prompts", group=REQUESTS,
        typing="↓", rank=4, joins=True, tooltip="A later prompt", help=""),
)  # fmt: skip
LEAVE_KEYS = PROMPT_KEYS[:1]

#: The row's and the mask's own, while they have focus.
_ARROWS = (("up", "above", 0, -1), ("down", "below", 0, 1), ("left", "to the left", -1, 0),
           ("right", "to the right", 1, 0))  # fmt: skip
ROW_KEYS: tuple[Key, ...] = (
    *(Key(id=f"row.{name}", keys=name, action=f"cursor({dx},{dy})", group=VIEW,
          tooltip=f"The token {where}", help="") for name, where, dx, dy in _ARROWS),
    Key(id="row.page_up", keys="pageup", action="page(-1)", group=VIEW, tooltip="The row: a page up",
        help=""),
    Key(id="row.page_down", keys="pagedown", action="page(1)", group=VIEW, tooltip="The row: a page down",
        help=""),
    Key(id="row.first", keys="home", action="edge(False)", group=VIEW, tooltip="The row's first token",
        help=""),
    Key(id="row.last", keys="end", action="edge(True)", group=VIEW, tooltip="The row's last token", help=""),
)  # fmt: skip
MASK_KEYS: tuple[Key, ...] = (
    *(Key(id=f"mask.{name}", keys=name, action=f"cursor({dx},{dy})", group=VIEW,
          tooltip=f"The cell {where}", help="") for name, where, dx, dy in _ARROWS),
    *(Key(id=f"mask.pan_{name}", keys=key, action=f"pan({dx},{dy})", group=VIEW,
          tooltip=f"Move the mask {name}", help="") for name, key, dx, dy in (
          ("up", "shift+up,pageup", 0, -1), ("down", "shift+down,pagedown", 0, 1),
          ("left", "shift+left", -1, 0), ("right", "shift+right", 1, 0))),
)  # fmt: skip

#: Of the panels whose lines are requests, and of the timeline, while they have focus.
LIST_KEYS: tuple[Key, ...] = (
    Key(id="request.previous", keys="up", action="move(-1)", group=REQUESTS,
        tooltip="The request above, here",
        help=""),
    Key(id="request.next", keys="down", action="move(1)", group=REQUESTS, tooltip="The request below, here",
        help=""),
    Key(id="request.page_up", keys="pageup", action="move(-10)", group=REQUESTS,
        tooltip="Ten requests up", help=""),
    Key(id="request.page_down", keys="pagedown", action="move(10)", group=REQUESTS,
        tooltip="Ten requests down", help=""),
    Key(id="request.open", keys="enter", action="open", group=REQUESTS,
        tooltip="All about the selected request, here", help=""),
)  # fmt: skip
TIMELINE_KEYS: tuple[Key, ...] = (
    Key(id="timeline.earlier", keys="left", action="pan(-8)", group=VIEW, tooltip="Earlier steps", help=""),
    Key(id="timeline.later", keys="right", action="pan(8)", group=VIEW, tooltip="Later steps", help=""),
)  # fmt: skip

RACE_KEYS: tuple[Key, ...] = (
    Key(id="race.pause", keys="space,f5", action="pause", label="pause", label_paused="run", group=RACE,
        shown="space", rank=1, tooltip="Pause the race, or let it run on"),
    Key(id="race.step", keys="s,f8", action="step", label="round", group=RACE, shown="s", rank=2,
        tooltip="One step of each lane"),
    Key(id="race.modes", keys="m", action="pair", label="modes", group=RACE, shown="m", rank=3,
        tooltip="The same requests in other modes"),
    Key(id="race.again", keys="r", action="again", label="again", group=RACE, shown="r", rank=3,
        tooltip="The race from the start"),
    Key(id="race.slower", keys="less_than_sign", action="speed(-1)", label="speed", group=RACE, shown="<",
        rank=4, tooltip="Half as many rounds a second", help="Half or twice as many rounds/s"),
    Key(id="race.faster", keys="greater_than_sign", action="speed(1)", label="speed", group=RACE, shown=">",
        rank=4, joins=True, tooltip="Twice as many rounds a second", help=""),
    Key(id="race.view", keys="v", action="turn_over", label="figures", group=RACE, shown="v", rank=2,
        tooltip="Finish lines or figures, where both do not fit",
        help="Finish lines or figures"),
    Key(id="race.leave", keys="escape", action="leave", label="back", group=RACE, shown="Esc", rank=0,
        tooltip="End the race"),
)  # fmt: skip

LESSON_KEYS: tuple[Key, ...] = (
    Key(id="lesson.go", keys="space,enter,right", action="go", label="go on", group=LESSON, shown="space",
        rank=0, tooltip="To the lesson's next stop"),
    Key(id="lesson.step", keys="s", action="step", label="one step", group=LESSON, shown="s", rank=2,
        tooltip="One step of every lane"),
    Key(id="lesson.again", keys="r", action="again", label="again", group=LESSON, shown="r", rank=3,
        tooltip="This lesson from the start"),
    Key(id="lesson.model", keys="m", action="model", label="your model/toy", group=LESSON, shown="m", rank=5,
        tooltip="The lesson on your own model, or on the toy", help="On your own model, or on the toy"),
    Key(id="lesson.previous", keys="b", action="other(-1)", label="lesson", group=LESSON, shown="b", rank=4,
        tooltip="The lesson before", help="The lesson before, or the next one"),
    Key(id="lesson.next", keys="n", action="other(1)", label="lesson", group=LESSON, shown="n", rank=4,
        joins=True, tooltip="The next lesson", help=""),
    Key(id="lesson.list", keys="l", action="list", label="all lessons", group=LESSON, shown="l", rank=3,
        tooltip="The list of lessons"),
    Key(id="lesson.leave", keys="escape", action="leave", label="back", group=LESSON, shown="Esc", rank=0,
        tooltip="Leave the lesson"),
)  # fmt: skip

#: Of screens in front of the main one that show its frames too; the time keys work there as well.
OVERLAY_KEYS: tuple[Key, ...] = (
    Key(id="overlay.close", keys="escape,q", action="dismiss", group=FRONT, shown="Esc",
        tooltip="Back to the screen"),
    Key(id="overlay.picture", keys="p", action="app.picture", group=FRONT,
        tooltip="Save what is in front as an SVG picture", help=""),
)  # fmt: skip
TEXT_KEYS: tuple[Key, ...] = (
    Key(id="text.close", keys="enter", action="dismiss", group=FRONT, tooltip="Close the request", help=""),
    Key(id="text.copy", keys="y", action="copy", group=FRONT, shown="y",
        tooltip="Copy the request's output to the clipboard",
        help="Copy the output"),
)  # fmt: skip
BLOCKS_KEYS: tuple[Key, ...] = (
    Key(id="blocks.close", keys="k", action="dismiss", group=FRONT, tooltip="Close the KV blocks", help=""),
)  # fmt: skip
SETTINGS_KEYS: tuple[Key, ...] = (
    Key(id="settings.above", keys="up,k,shift+tab", action="choose(-1)", group=FRONT, shown="↑",
        tooltip="The setting above", help="Choose a setting, or a field"),
    Key(id="settings.below", keys="down,j,tab", action="choose(1)", group=FRONT, shown="↓", joins=True,
        tooltip="The setting below", help=""),
    Key(id="settings.less", keys="left,h,minus", action="change(-1)", group=FRONT, shown="←",
        tooltip="Less, or the choice before", help="Change it; digits type a number"),
    Key(id="settings.more", keys="right,l,plus", action="change(1)", group=FRONT, shown="→", joins=True,
        tooltip="More, or the next choice", help=""),
    Key(id="settings.apply", keys="enter", action="apply", group=FRONT, shown="enter",
        tooltip="Ask for what was changed"),
    Key(id="settings.leave", keys="escape,o,q", action="dismiss(None)", group=FRONT,
        tooltip="Close the settings", help=""),
)  # fmt: skip
HELP_KEYS: tuple[Key, ...] = (
    Key(id="help.close", keys="escape,q,question_mark,f1,enter", action="close", group=FRONT,
        tooltip="Close help", help=""),
    Key(id="help.up", keys="up,k", action="scroll(-1)", group=FRONT, tooltip="Help: up", help=""),
    Key(id="help.down", keys="down,j", action="scroll(1)", group=FRONT, tooltip="Help: down", help=""),
)  # fmt: skip
LOAD_KEYS: tuple[Key, ...] = (
    Key(id="load.leave", keys="escape", action="dismiss(None)", group=FRONT, tooltip="Start no load",
        help=""),
    Key(id="load.above", keys="up", action="app.focus_previous", group=FRONT, tooltip="The field above",
        help=""),
    Key(id="load.below", keys="down", action="app.focus_next", group=FRONT, tooltip="The field below",
        help=""),
)  # fmt: skip
NUMBER_KEYS: tuple[Key, ...] = (
    Key(id="number.close", keys="escape", action="dismiss", group=FRONT, tooltip="Ask for no number",
        help=""),
)  # fmt: skip

#: Textual's own bindings; listed so that the bottom line and help name them.
TAB_KEY = Key(id="focus.next", keys="tab", action="app.focus_next", label="max tokens", group=APP,
              typing="Tab", rank=3, tooltip="To max tokens, then from panel to panel",
              help="To max tokens, then the panels")  # fmt: skip

#: Says in help what the row's and the mask's keys have in common.
CURSOR_KEY = Key(id="panel.cursor", keys="up", action="cursor(0,-1)", group=VIEW, shown="↑ ↓ ← →",
                 tooltip="In the row or the mask (Tab goes there): look at one token, one cell",
                 help="In row or mask: a token, a cell")  # fmt: skip

#: Says in help what of the main screen's keys works in front of it.
FRONT_KEY = Key(id="front.engine", keys="space", action="engine_behind('pause')", group=FRONT,
                shown="space s", tooltip="Pause or step the engine behind")  # fmt: skip

PALETTE_KEY = Key(id="app.palette", keys="ctrl+p", action="app.command_palette", group=APP, shown="ctrl+p",
                  tooltip="Search all commands")  # fmt: skip

APP_KEYS: tuple[Key, ...] = (
    Key(id="app.help", keys="question_mark,f1", action="help", label="help", group=APP, shown="?",
        typing="F1", rank=0, tooltip="This help"),
    Key(id="app.picture", keys="p", action="picture", group=APP, shown="p",
        tooltip="Save the screen as an SVG picture in the working directory",
        help="Save the screen as an SVG picture"),
    Key(id="app.quit", keys="q,ctrl+q", action="quit", label="quit", group=APP, shown="q", typing="ctrl+q",
        rank=1, tooltip="Quit"),
    Key(id="app.interrupt", keys="ctrl+c", action="interrupt", group=APP, shown="ctrl+c", priority=True,
        tooltip="Twice: quit at once"),
    Key(id="app.suspend", keys="ctrl+z", action="to_shell", group=APP, shown="ctrl+z", priority=True,
        tooltip="Back to the shell; its fg comes back here"),
)  # fmt: skip


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """`BINDINGS` of some keys."""
    return [key.binding() for key in keys]


#: Keys that work at the same time, innermost first: none of them may mean two things.
LEVELS: tuple[tuple[Key, ...], ...] = (
    (*SCREEN_KEYS, *APP_KEYS),
    PROMPT_KEYS,
    ROW_KEYS,
    MASK_KEYS,
    LIST_KEYS,
    TIMELINE_KEYS,
    (*RACE_KEYS, *APP_KEYS),
    (*LESSON_KEYS, *APP_KEYS),
    (*OVERLAY_KEYS, *TEXT_KEYS, *BLOCKS_KEYS, *TRAVEL_KEYS, *ENGINE_KEYS),
    (*SETTINGS_KEYS, *ENGINE_KEYS),
    (*HELP_KEYS, *ENGINE_KEYS),
    (*LOAD_KEYS, *ENGINE_KEYS),
    (*NUMBER_KEYS, *ENGINE_KEYS),
)
