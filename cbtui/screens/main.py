"""The main screen: every panel, the prompt, and the keys that act on the engine.

Looks at the mailbox at a steady pace, makes a frame and hands it to the panels whose data changed. It
never calls into the engine: it puts commands into a queue, and sees in the next frame what came of them.
"""

from __future__ import annotations

import dataclasses
from functools import partial

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from cbtui import orders
from cbtui.following.follower import went_unseen
from cbtui.following.frame import Frame
from cbtui.following.link import Link
from cbtui.keys import APP_KEYS, LEAVE_KEYS, PROMPT_KEYS, SCREEN_KEYS, bindings
from cbtui.keys_shown import Remap, as_made
from cbtui.options import LaunchOptions
from cbtui.screens.arrangement import TABS, Needs, arrange, kind_of
from cbtui.screens.deck import Deck
from cbtui.screens.excursions import ExcursionScreen
from cbtui.screens.live_settings import LiveSettings
from cbtui.screens.overlay import Overlay
from cbtui.screens.panels import PANELS, Panel, tab_titles
from cbtui.screens.travel import TravelScreen
from cbtui.screens.welcoming import WelcomingScreen
from cbtui.telling.run_result import modes_in_words
from cbtui.telling.words import sampling_words
from cbtui.widgets.centre import RECORDED, Centre, centre_text, lines_of, over_recording
from cbtui.widgets.key_bar import KeyBar, KeyClicked
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.messages import SlotsScrolled
from cbtui.widgets.prompt_bar import PromptBar, PromptLeft
from cbtui.widgets.slots import slot_rows
from cbtui.widgets.tab_heads import TabChosen, TabHeads, heads_cells
from cbtui.widgets.timeline import Timeline
from cbtui.widgets.waiting import Waiting

#: Keys of one action ask for one thing.
_BY_ACTION = {key.action.partition("(")[0]: key for key in SCREEN_KEYS}


class MainScreen(TravelScreen, ExcursionScreen, WelcomingScreen):
    """See the module's words. Made of the table of panels, the prompt and the bottom line."""

    KEYS = SCREEN_KEYS
    BINDINGS = bindings(KEYS)
    #: Only the start leads to the prompt: after what stood in front has closed, keys mean what they meant.
    AUTO_FOCUS = ""

    def __init__(self, link: Link, options: LaunchOptions) -> None:
        super().__init__(link, options)
        self._needs = Needs()
        #: Gives keys as the user has them, for the bottom line.
        self.remap: Remap = as_made
        self._drawn: dict[str, object] = {}

    def compose(self) -> ComposeResult:
        panels = [panel.make() for panel in PANELS]
        prompt = PromptBar(
            self.options.max_tokens,
            self.most_tokens,
            sampling=sampling_words(self.options.asked),
            id="prompt",
        )
        yield Deck(
            *panels,
            Timeline(id="twin"),
            TabHeads(id="tabs"),
            Centre(id="centre"),
            prompt,
            KeyBar(remap=self.remap, id="keys"),
            id="deck",
        )

    def on_mount(self) -> None:
        """Draw the first frame; the engine is not started yet."""
        self.draw()
        # Nobody types a prompt to a recording or to a socket: there, keys act at once.
        is_silent = self.options.attach is not None and self.options.attach.socket is not None
        is_silent = is_silent or self.options.replay is not None
        self.query_one("#slots" if is_silent else "#prompt-text").focus()
        if self.options.demo:
            self.submit_demo()
        if self.options.lesson_on_model:
            self._lessons_on_model = self._waits_for_lesson = True
        elif self.options.lesson:
            self.call_after_refresh(self.lesson, self.options.lesson)

    # -- looking and drawing ------------------------------------------------------------------

    def look(self) -> None:
        """Take in what is new and draw it."""
        missed = self.follower.num_missed
        if self.follower.poll():
            if self.follower.num_missed > missed:
                self.say(went_unseen(self.follower.num_missed - missed))
            self.keep_place()
            self.draw()
            self.race_when_ready()
            self.lesson_when_ready()

    def engine_is_stuck(self, words: str) -> None:
        """Say what the engine's thread is stuck in; empty: it gets on."""
        if self.follower.engine_is_stuck(words):
            self.draw()

    def draw(self) -> None:
        """Draw the newest frame: each panel shown whose data changed."""
        if not self.is_mounted:
            return
        frame = self.frame()
        with self.app.batch_update():
            self.say_rejections(frame.state)
            self.say_refusals(frame.state)
            self.drop_stale_notice(frame.state)
            shown = self.shown_frame(frame)
            self._arrange(frame, shown)
            for panel in PANELS:
                self._show(panel, frame if panel.id == "header" else shown)
            self._show_twin(frame)
            self.query_one(KeyBar).show(frame)
            if isinstance(front := self.app.screen, Overlay | LiveSettings):
                front.show(frame)
            model = frame.state.model
            self.query_one(PromptBar).show_chat(self.wants_chat, model is None or model.has_chat_template)

    def _show(self, panel: Panel, frame: Frame) -> None:
        widget = self.query_one(f"#{panel.id}")
        if not widget.display:
            self._drawn.pop(panel.id, None)
            return
        is_recorded = panel.id != "header" and self.recorded is not None
        key = is_recorded, panel.depends(frame)
        if self._drawn.get(panel.id) != key:
            self._drawn[panel.id] = key
            # Also where it is the same as before, setting it has the whole panel painted again.
            if (widget.border_subtitle is not None) != is_recorded:
                widget.border_subtitle = RECORDED if is_recorded else None
            panel.show(widget, frame)

    def _show_twin(self, frame: Frame) -> None:
        """Two timelines on one scale, when the same requests ran in another mode before."""
        last, twin = self.follower.last_run, self.follower.twin
        if last is None or twin is None or not frame.is_live:
            self._drawn.pop("twin", None)
            self.query_one("#timeline", Timeline).share_scale(0)
            return
        steps = max(last.summary.steps, twin.summary.steps)
        self.query_one("#timeline", Timeline).share_scale(steps)
        if self._drawn.get("twin") is not twin:
            self._drawn["twin"] = twin
            name = f"The same requests, {modes_in_words(twin.summary)}:"
            self.query_one("#twin", Timeline).draw_run(twin.lanes, frame.badges, steps=steps, name=name)

    def _arrange(self, frame: Frame, shown: Frame) -> None:
        size = self.app.size
        state = frame.state
        is_untouched = not (frame.records or state.waiting_count or state.arriving_count)
        text = centre_text(state, is_untouched)
        if text and self.recorded is not None:
            text = over_recording(state.loading)
        lanes = len(slot_rows(shown))
        titles = tab_titles(kind_of(size), shown)
        self._needs = dataclasses.replace(
            self._needs,
            slots=lanes,
            has_twin=self.follower.twin is not None and frame.is_live,
            tab_cells=heads_cells(titles),
            centre=partial(lines_of, text) if text else None,
            is_centre_low=self.recorded is not None,
        )
        if text:
            self.query_one(Centre).say(text, is_failure=state.failure is not None or bool(state.stuck))
        arrangement = arrange(size, self._needs)
        waiting = self.query_one("#waiting", Waiting)
        waiting.head_cells = self._needs.tab_cells if arrangement.kind == "medium" else 0
        if arrangement.kind == "tiny":
            return  # another screen stands in front; what had focus keeps it
        deck = self.query_one(Deck)
        kind_before = deck.arrangement.kind
        if deck.arrange_as(arrangement):
            for kind in ("large", "medium", "small"):
                self.set_class(arrangement.kind == kind, f"-{kind}")
            if kind_before != arrangement.kind:
                self._needs = (
                    dataclasses.replace(self._needs, tab=0) if kind_before != "tiny" else self._needs
                )
                self.query_one(PromptBar).set_brief(arrangement.kind == "small")
        self.query_one(TabHeads).show_tabs(titles, self._needs.tab)

    def on_resize(self, event: events.Resize) -> None:
        """Arrange anew, before the panels are laid out."""
        self.draw()

    def on_screen_resume(self) -> None:
        """The size may have changed while another screen was in front."""
        self.draw()

    # -- the view -----------------------------------------------------------------------------

    def action_cells(self, by: int = 1) -> None:
        """The mask's next scale: folded, true cells, smaller ones until all is seen."""
        mask = self.query_one(MaskGrid)
        mask.zoom(by)
        self.say(mask.zoom_words)

    def action_layers(self) -> None:
        """The mask in the model's next kind of layers."""
        self.say(self.query_one(MaskGrid).next_layers())

    def action_tab(self, number: int) -> None:
        """Choose a tab by its number, from 1."""
        self._choose_tab(number - 1)

    @on(TabChosen)
    def _tab_chosen(self, event: TabChosen) -> None:
        self._choose_tab(event.number)

    def _choose_tab(self, tab: int) -> None:
        self._needs = dataclasses.replace(self._needs, tab=tab)
        is_typing = self.query_one(PromptBar) in (self.focused.ancestors if self.focused else ())
        self.draw()
        if not is_typing:
            self._focus_panel()

    def _focus_panel(self) -> None:
        """Give focus to the tab's panel, or to Slots."""
        tabs = TABS[self.query_one(Deck).arrangement.kind]
        names = ["slots", *(tabs[self._needs.tab][1] if tabs else ())]
        for name in names:
            panel = self.query_one(f"#{name}")
            if panel.display and panel.can_focus:
                panel.focus()
                return
        self.set_focus(None)

    @on(SlotsScrolled)
    def _slots_scrolled(self, event: SlotsScrolled) -> None:
        self.query_one("#timeline", Timeline).scroll_to_slot(event.first)

    @on(PromptLeft)
    def _prompt_left(self) -> None:
        self.say()
        self._focus_panel()

    # -- keys ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tabs exist at small sizes only, a retry only after a failure, and some things not everywhere."""
        match action, parameters:
            case "tab", (int(number),):
                return self.is_mounted and number <= len(TABS[self.query_one(Deck).arrangement.kind])
            case "retry", _:
                return self.state.failure is not None
        return not (action in _BY_ACTION and orders.why_not(self.state, _BY_ACTION[action]))

    def on_descendant_focus(self) -> None:
        """Other keys work now."""
        self._show_keys()

    def on_descendant_blur(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        self.query_one(KeyBar).show_typing(isinstance(self.focused, Input))

    @on(KeyClicked)
    async def _key_clicked(self, event: KeyClicked) -> None:
        if event.key.id == LEAVE_KEYS[0].id:
            self._focus_panel()
        elif any(event.key.id == key.id for key in PROMPT_KEYS):
            await self.query_one(PromptBar).line.run_action(event.key.action)
        else:
            await (self.app if any(event.key.id == key.id for key in APP_KEYS) else self).run_action(
                event.key.action
            )

    def on_key(self, event: events.Key) -> None:
        """Answer a key that does nothing, here or anywhere."""
        if event.key == "ctrl+c":
            return
        self.say()
        pressed = [key for key in map(self.remap, SCREEN_KEYS) if event.key in key.keys.split(",")]
        if pressed and (why := orders.why_not(self.state, pressed[0])):
            self.say(why)
        elif event.is_printable and event.key not in self.active_bindings:
            self.say("/ to type, ? for all keys")
