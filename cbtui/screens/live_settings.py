"""The live settings (`o`): changed while the engine runs, in force from its next step on."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from cbtui.following.frame import Frame
from cbtui.keys import SETTINGS_KEYS, bindings
from cbtui.looks.pieces import Line, Piece, clip_line, fit, line_width
from cbtui.screens.in_front import InFront
from cbtui.settings_form import SETTINGS, SettingsForm, in_force, pending
from cbtui.widgets.lines import LinesView
from engine.config import ConfigError
from engine.live.commands import Command
from engine.live.state import EngineState

_LABEL, _VALUE, _NOW = 16, 21, 30


def setting_line(form: SettingsForm, number: int, state: EngineState, cells: int = 80) -> Line:
    """One line: name, what is wanted, what is in force (where there is room), and what waits."""
    setting = SETTINGS[number]
    is_chosen = number == form.at
    value = form.wanted[setting.name]
    if is_chosen:
        value = f"◂ {value or '…'} ▸"
    else:
        value = f"  {value}"
    now, later = in_force(state)[setting.name], pending(state).get(setting.name)
    style = "accent" if is_chosen else ("strong" if form.is_changed(setting.name) else "")
    pieces: list[Piece] = [
        ("", "cursor") if is_chosen else ("", ""),
        ("▸ " if is_chosen else "  ", "accent"),
        (fit(setting.label, _LABEL), "strong" if is_chosen else "dim"),
        (fit(value, _VALUE), style),
    ]
    rest: list[Piece] = [("now ", "dim"), (now, "")]
    if later is not None:
        rest.append((f", {later} at the next step", "warn"))
    if line_width((*pieces, *rest)) > cells:
        rest = [] if later is None else [(f"from {now}", "warn")]
    return clip_line((*pieces, *rest), cells)


class SettingLines(LinesView, can_focus=True):
    """The lines of the form; the screen answers the keys."""

    DEFAULT_CSS = """
    SettingLines { height: 6; width: 100%; overflow-y: hidden; background: $surface; }
    """


class LiveSettings(InFront[None]):
    """Sends commands itself and stays, so that one sees them take effect.

    Args:
        state: the engine's newest state.
        send: puts a command into the engine's queue.
    """

    KEYS = (*SETTINGS_KEYS, *InFront.KEYS)
    BINDINGS = bindings(SETTINGS_KEYS)
    DEFAULT_CSS = """
    LiveSettings {
        align: center middle;
        background: $background 60%;
        & #settings-words { height: auto; margin: 0 0 1 0; color: $foreground 75%; }
        & #settings-about { height: 2; margin: 1 0 0 0; color: $foreground 75%; }
        & #settings-about.-error { color: $text-error; }
    }
    """

    def __init__(self, state: EngineState, send: Callable[[Command], None]) -> None:
        super().__init__()
        self._state = state
        self._send = send
        self.form = SettingsForm(state)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = Content(" Live settings ")
            box.border_subtitle = Content(" ↑↓ choose · ←→ or digits change · Enter apply · Esc back ")
            words = "Nothing is restarted: what you change is in force from the next step on."
            yield Static(Content(words), id="settings-words")
            yield SettingLines()
            yield Static(id="settings-about", markup=False)

    def on_mount(self) -> None:
        self._redraw()

    def show(self, frame: Frame) -> None:
        """Draw what is in force now."""
        self._state = frame.state
        self._redraw()

    def _redraw(self) -> None:
        lines = self.query_one(SettingLines)
        lines.draw(len(SETTINGS), lambda y, cells: setting_line(self.form, y, self._state, cells))
        about = self.query_one("#settings-about", Static)
        try:
            commands = self.form.commands(self._state)
        except ConfigError as exc:
            about.add_class("-error")
            text = str(exc)
            about.update(Content(text[:1].upper() + text[1:] + "."))
            return
        about.remove_class("-error")
        setting = self.form.setting
        value = self.form.wanted[setting.name]
        text = setting.choices[value] if setting.choices is not None else setting.about
        about.update(Content(text + ("\nEnter asks for what was changed." if commands else "")))

    # -- keys ------------------------------------------------------------------------------------

    def action_choose(self, by: int) -> None:
        """Another line."""
        self.form.select(by)
        self._redraw()

    def action_change(self, by: int) -> None:
        """A step less or more, the choice before or after."""
        self.form.change(by)
        self._redraw()

    def action_apply(self) -> None:
        """Send what was changed; the lines show when it is in force."""
        try:
            commands = self.form.commands(self._state)
        except ConfigError:
            return  # said below the lines
        if not commands:
            self.dismiss(None)
            return
        for command in commands:
            self._send(command)
        self.form.sent()
        self._redraw()

    def on_key(self, event: events.Key) -> None:
        """Digits are typed; backspace takes one back."""
        if event.key == "backspace":
            self.form.erase()
        elif event.character is None or not self.form.type(event.character):
            return
        event.stop()
        self._redraw()
