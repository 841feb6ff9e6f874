"""The app: theme, screens, the engine's thread, and every way out.

Heavy things (torch, the model, the tokenizer) live in other processes or are read later, so the first
picture is there within a second of the command.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from textual import events
from textual.actions import parse
from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from cbtui import orders
from cbtui.following.engine_thread import EngineThread
from cbtui.following.link import EngineDriver, Link
from cbtui.following.overheard import tape_fault
from cbtui.following.pace import FRAMES_PER_S, Pace
from cbtui.keymap import Keymap, remapped, written_keys
from cbtui.keys import APP_KEYS, Key, bindings
from cbtui.keys_in_turn import KeysInTurn, apart
from cbtui.looks.guard import HarmlessFilter
from cbtui.looks.theme import THEMES
from cbtui.options import LaunchOptions, risks
from cbtui.screens.arrangement import kind_of
from cbtui.screens.confirm import AskScreen, yes
from cbtui.screens.looking import LookingScreen
from cbtui.screens.main import MainScreen
from cbtui.screens.too_small import TooSmallScreen
from cbtui.settings import Settings, SettingsError, keep_theme, settings_path
from cbtui.terminal_driver import TerminalDriver
from engine.live.commands import Close

#: What only makes sense as a key: quitting at the second press.
_NOT_IN_PALETTE = ("interrupt",)
#: Exit status after ctrl+c, as shells expect it.
INTERRUPTED = 130


class EngineBroke(Message):
    """The engine's thread has ended by a fault of its own."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class CbtuiApp(App[None]):
    """Shows an engine, live.

    Args:
        link: shared with the engine; tests publish into it themselves.
        options: what the command line said.
        driver: runs the engine in a thread; None: nobody does.
        pace: when to look for news; None: only when `screen.look()` is called.
        handles_signals: end cleanly on TERM, HUP, INT and QUIT, too.
        settings: the user's: theme and keys.
    """

    TITLE = "cbtui"
    CSS_PATH = ["cbtui.tcss", "themes.tcss", "screens/main.tcss"]
    BINDINGS = bindings(APP_KEYS)

    def __init__(
        self,
        link: Link | None = None,
        options: LaunchOptions | None = None,
        *,
        driver: EngineDriver | None = None,
        pace: Pace | None = None,
        handles_signals: bool = False,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.link = link or Link()
        self.options = options or LaunchOptions()
        self.main = MainScreen(self.link, self.options)
        self.engine = EngineThread(driver, self._engine_broke) if driver else None
        self._pace = pace
        self._handles_signals = handles_signals
        self._was_interrupted = False
        self.keys_in_turn = KeysInTurn(self, super().on_event)
        self._guard = HarmlessFilter()
        self._is_frozen = False
        self._tape_fault = ""
        self.animation_level = "none"
        settings = settings or Settings()
        for theme in THEMES.values():
            self.register_theme(theme)
        self.use_theme(self.options.theme or settings.theme)
        self.user_keys: Keymap = settings.keys
        self.main.remap = partial(remapped, keymap=self.user_keys)
        self.set_keymap(settings.keys)

    def use_theme(self, name: str) -> None:
        """Take on a theme by the name people use."""
        self.theme = THEMES[name].name
        for other in THEMES:
            self.set_class(other == name, f"-{other}")

    def get_driver_class(self) -> type[Driver]:
        """Textual's; on a terminal, ours."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and the guard against text that would be an order to the terminal."""
        return [*super().get_line_filters(), self._guard]

    def get_default_screen(self) -> Screen[None]:
        return self.main

    def on_mount(self) -> None:
        """Draw first, then start the engine and look for its news."""
        if self._handles_signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))
            if isinstance(self._driver, TerminalDriver):
                loop.add_signal_handler(signal.SIGTSTP, self._driver.stop)
                loop.add_signal_handler(signal.SIGCONT, self._driver.go_on)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self._watch_size(self.size)
        for risk in risks(self.options.runner):
            self.notify(risk, severity="warning", timeout=15, markup=False)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        if self.engine is not None:
            self.engine.start()
        if self._pace is not None:
            self.set_interval(1 / FRAMES_PER_S, self._tick)
            self.main.welcome_soon()

    def _tick(self) -> None:
        if self._pace is None or not self._pace.is_due():
            return
        self.main.look()
        self._see_whether_stuck()
        if isinstance(self.screen, LookingScreen):
            self.screen.look()
        if (fault := tape_fault(self.link)) != self._tape_fault:
            self._tape_fault = fault
            self.main.say(fault)
        if not self._is_frozen and self.main.follower.state.model is not None:
            # What lives now lives on; without this the collector walks through it again and again.
            gc.collect()
            gc.freeze()
            self._is_frozen = True

    def _engine_broke(self, error: Exception) -> None:
        """Called in the engine's thread."""
        self.post_message(EngineBroke(f"{type(error).__name__}: {error}"))

    def on_engine_broke(self, event: EngineBroke) -> None:
        """A fault in the engine's thread is shown; the screen stays."""
        self.main.follower.engine_broke(event.words)
        self.main.draw()

    def _see_whether_stuck(self) -> None:
        """Say it where it is seen, too: a race's lanes are run by the same thread."""
        was = self.main.follower.state.stuck
        words = self.engine.stuck_in if self.engine is not None else ""
        self.main.engine_is_stuck(words)
        if words and not was and self.screen is not self.main:
            self.notify(words, severity="error", timeout=60, markup=False)

    def on_app_blur(self, event: events.AppBlur) -> None:
        """In a browser keys come only while the page has the keyboard: which part of it has them stays so."""
        if self.is_web:
            event.prevent_default()

    # -- size ---------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._watch_size(event.size)

    def _watch_size(self, size: Size) -> None:
        is_tiny = kind_of(size) == "tiny"
        in_front = isinstance(self.screen, TooSmallScreen)
        if is_tiny and not in_front:
            self.push_screen(TooSmallScreen())
        elif in_front and not is_tiny:
            self.pop_screen()

    # -- ways out -----------------------------------------------------------------------------

    async def action_quit(self) -> None:
        """Quit; asks first while requests are unfinished."""
        unfinished = orders.num_unfinished(self.link.mailbox.latest())
        if not unfinished or isinstance(self.screen, TooSmallScreen):
            self.exit()
            return
        if isinstance(self.screen, AskScreen):
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.exit()

        are = "request is" if unfinished == 1 else "requests are"
        question = f"{unfinished} {are} unfinished and would be lost."
        self.push_screen(AskScreen("Quit", question, [yes("quit", "q", "ctrl+q")]), answered)

    def action_interrupt(self) -> None:
        """ctrl+c: copies a selection if there is one; else says how to quit, the second time quits."""
        typed = self.focused.selected_text if isinstance(self.focused, Input) else ""
        if selected := typed or self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            return
        if self._was_interrupted:
            self.exit(return_code=INTERRUPTED)
        self._was_interrupted = True
        self._answer("ctrl+c again to quit")

    def action_to_shell(self) -> None:
        """ctrl+z: stop, with the terminal as it was; the engine and its clock stand still meanwhile."""
        driver = self._driver
        # Where this program was started by no shell, nobody could wake it up again.
        if driver is None or not driver.can_suspend or os.getpgrp() == os.getsid(0):
            self._answer("there is no shell to go back to")
            return
        self.action_suspend_process()

    async def on_event(self, event: events.Event) -> None:
        """Any other key takes a first ctrl+c back, whoever it is for, and the first one ends the welcome."""
        if isinstance(event, events.Key) and event.key != "ctrl+c":
            self._was_interrupted = False
        if isinstance(event, events.Key | events.Paste):
            self.main.end_welcome()
            if not event.is_forwarded:
                is_bound = isinstance(event, events.Key) and event.key in self.screen.active_bindings
                for key in (event,) if is_bound else apart(event):
                    await self.keys_in_turn.take(key)
                return
        await super().on_event(event)

    def on_unmount(self) -> None:
        """However it ends: tell the engine, and end the model without waiting for a forward."""
        self.link.commands.put(Close())
        if self.engine is not None:
            # In a thread of its own, because it may take a while: the terminal is given back at once.
            threading.Thread(target=self.engine.end, name="close").start()

    def _answer(self, words: str) -> None:
        """In words, where they are seen: beside the prompt, or over what stands in front of it."""
        if self.screen is self.main:
            self.main.say(words)
        else:
            self.notify(words, markup=False)

    # -- pictures -----------------------------------------------------------------------------

    def action_picture(self) -> None:
        """Save what is seen now as an SVG file, and say where it went."""
        path = picture_path(Path.cwd(), self.main.follower.state.step)
        try:
            path.write_text(self.export_screenshot(title="cbtui"), "utf-8")
        except OSError as exc:
            self._answer(f"no picture: {path} cannot be written ({exc.strerror})")
        else:
            self._answer(f"saved {path}")

    def action_keep_theme(self) -> None:
        """Write the theme into the settings file, and say so."""
        path = settings_path()
        if path is None:
            return
        name = next(name for name in THEMES if THEMES[name].name == self.theme)
        try:
            keep_theme(path, name)
        except SettingsError as exc:
            self._answer(f"not kept: {exc}")
        else:
            self._answer(f"{name} is kept in {path}")

    # -- help and palette ---------------------------------------------------------------------

    def action_help(self) -> None:
        from cbtui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen | TooSmallScreen):
            self.push_screen(HelpScreen(self.user_keys, self.link.mailbox.latest()))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette's commands, from the same table as everything else: what the panel with the keyboard,
        the screen in front and the program answer to now."""
        named: set[str] = set()
        for target, keys in ((screen.focused, None), (screen, None), (self, APP_KEYS)):
            for key in getattr(target, "KEYS", ()) if keys is None else keys:
                if target is None or key.id in named or key.action.startswith(_NOT_IN_PALETTE):
                    continue
                if not _works(target, key):
                    continue
                named.add(key.id)
                shown = remapped(key, self.user_keys)
                yield SystemCommand(
                    key.tooltip,
                    f"key: {written_keys(shown)}",
                    partial(target.run_action, key.action),
                )
        for name in THEMES:
            about = "for this session; `Keep this theme` makes it stay"
            yield SystemCommand(f"Theme: {name}", about, partial(self.use_theme, name))
        if (path := settings_path()) is not None:
            yield SystemCommand("Keep this theme", f"write it into {path}", self.action_keep_theme)


def _works(target: DOMNode, key: Key) -> bool:
    """Whether an action can do anything now."""
    _, name, parameters = parse(key.action)
    return target.check_action(name, parameters) is True


def picture_path(folder: Path, step: int) -> Path:
    """A file name that is free: `cbtui-step-120.svg`, `cbtui-step-120-2.svg`, …"""
    name = f"cbtui-step-{step}"
    names = (f"{name}{'' if number == 1 else f'-{number}'}.svg" for number in count(1))
    return next(path for path in map(folder.joinpath, names) if not path.exists())
