"""The main screen: every panel, the prompt, and the keys that act on the engine.

Looks at the mailbox at a steady pace, makes a frame and hands it to the panels whose data changed. It
never calls into the engine: it puts commands into a queue, and sees in the next frame what came of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from textual import events, on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input

from cbtui import orders
from cbtui.follower import Follower
from cbtui.frame import Frame
from cbtui.keys import APP_KEYS, LEAVE_KEYS, PROMPT_KEYS, SCREEN_KEYS, bindings
from cbtui.link import Link
from cbtui.naming import letter_of
from cbtui.options import LaunchOptions
from cbtui.run_result import modes_in_words
from cbtui.screens.arrangement import TABS, Needs, arrange, kind_of
from cbtui.screens.confirm import Answer, AskScreen, yes
from cbtui.screens.deck import Deck
from cbtui.screens.modes import ask_mode
from cbtui.screens.panels import PANELS, Panel, tab_titles
from cbtui.widgets.centre import Centre, centre_text, lines_of
from cbtui.widgets.key_bar import KeyBar, KeyClicked
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.messages import RequestOpened, RequestSelected, SlotsScrolled
from cbtui.widgets.prompt_bar import ChatClicked, LinesPasted, PromptBar, PromptLeft, PromptsEntered
from cbtui.widgets.tab_heads import TabChosen, TabHeads, heads_cells
from cbtui.widgets.text_view import TextView
from cbtui.widgets.timeline import Timeline
from engine.commands import Cancel, Command, PromptRequest, Restart, SetMode, Step, Submit
from engine.state import EngineState


class MainScreen(Screen[None]):
    """See the module's words.

    Args:
        link: the three objects shared with the engine.
        options: what the command line said.
    """

    BINDINGS = bindings(SCREEN_KEYS)
    AUTO_FOCUS = "#prompt-text"

    def __init__(self, link: Link, options: LaunchOptions) -> None:
        super().__init__()
        self.link = link
        self.follower = Follower(link.mailbox, link.history)
        self.selected: str | None = None
        self._options = options
        self._wants_chat = not options.raw
        self._needs = Needs()
        self._drawn: dict[str, object] = {}
        self._rejections_seen = 0
        self._last_prompt = ""
        self._demo_was_sent = False

    def compose(self) -> ComposeResult:
        panels = [panel.make(id=panel.id) for panel in PANELS]
        prompt = PromptBar(self._options.max_tokens, self._most_tokens, id="prompt")
        yield Deck(
            *panels,
            Timeline(id="twin"),
            TabHeads(id="tabs"),
            Centre(id="centre"),
            prompt,
            KeyBar(id="keys"),
            id="deck",
        )

    def on_mount(self) -> None:
        """Draw the first frame; the engine is not started yet."""
        self.draw()
        if self._options.demo:
            self._submit_demo()

    # -- looking and drawing ------------------------------------------------------------------

    def look(self) -> None:
        """Take in what is new and draw it."""
        if self.follower.poll():
            self.draw()

    def draw(self) -> None:
        """Draw the newest frame: each panel shown whose data changed."""
        if not self.is_mounted:
            return
        frame = self.follower.frame(self.selected)
        with self.app.batch_update():
            self._say_rejections(frame.state)
            self._arrange(frame)
            for panel in PANELS:
                self._show(panel, frame)
            self._show_twin(frame)
            self.query_one(KeyBar).show(frame)
            if isinstance(self.app.screen, TextView):
                self.app.screen.show(frame)
            model = frame.state.model
            self.query_one(PromptBar).show_chat(self._wants_chat, model is None or model.has_chat_template)

    def _show(self, panel: Panel, frame: Frame) -> None:
        widget = self.query_one(f"#{panel.id}")
        if not widget.display:
            self._drawn.pop(panel.id, None)
            return
        key = panel.depends(frame)
        if self._drawn.get(panel.id) != key:
            self._drawn[panel.id] = key
            panel.show(widget, frame)

    def _show_twin(self, frame: Frame) -> None:
        """Two timelines on one scale, when the same requests ran in another mode before."""
        last, twin = self.follower.last_run, self.follower.twin
        if last is None or twin is None:
            self._drawn.pop("twin", None)
            self.query_one("#timeline", Timeline).share_scale(0)
            return
        steps = max(last.summary.steps, twin.summary.steps)
        self.query_one("#timeline", Timeline).share_scale(steps)
        if self._drawn.get("twin") is not twin:
            self._drawn["twin"] = twin
            name = f"The same requests, {modes_in_words(twin.summary)}:"
            self.query_one("#twin", Timeline).draw_run(twin.records, frame.badges, steps=steps, name=name)

    def _arrange(self, frame: Frame) -> None:
        size = self.app.size
        state = frame.state
        is_untouched = not (frame.records or state.waiting_count or state.arriving_count)
        text = centre_text(state, is_untouched)
        lanes = max([state.config.max_num_seqs, *(slot.slot + 1 for slot in state.slots)])
        titles = tab_titles(kind_of(size), frame)
        self._needs = dataclasses.replace(
            self._needs,
            slots=lanes,
            has_twin=self.follower.twin is not None,
            tab_cells=heads_cells(titles),
            centre=lines_of(text, min(76, size.width - 4)) if text else 0,
        )
        if text:
            self.query_one(Centre).say(text, is_failure=state.failure is not None)
        arrangement = arrange(size, self._needs)
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

    def _say_rejections(self, state: EngineState) -> None:
        rejection = state.rejection
        if rejection is None or rejection.number <= self._rejections_seen:
            return
        self._rejections_seen = rejection.number
        bar = self.query_one(PromptBar)
        if self._last_prompt:
            bar.put_back(self._last_prompt)
            self._last_prompt = ""
        bar.say(rejection.message, is_error=True)

    def on_resize(self, event: events.Resize) -> None:
        """Arrange anew, before the panels are laid out."""
        self.draw()

    def on_screen_resume(self) -> None:
        """The size may have changed while another screen was in front."""
        self.draw()

    # -- the engine ---------------------------------------------------------------------------

    @property
    def _state(self) -> EngineState:
        """The newest state, which may be newer than what is drawn."""
        return self.link.mailbox.latest()

    def _send(self, command: Command) -> None:
        self._last_prompt = ""
        self.link.commands.put(command)

    def _order(self, make: Callable[[], Command]) -> None:
        try:
            self._send(make())
        except orders.NoOrder as exc:
            self.say(str(exc))

    def say(self, text: str = "") -> None:
        """Answer a key in words, beside the prompt."""
        self.query_one(PromptBar).say(text)

    def action_pause(self) -> None:
        self._order(lambda: orders.pause_order(self._state))

    def action_step(self) -> None:
        self._send(Step())

    def action_mode(self) -> None:
        self._order(lambda: orders.mode_order(self._state))

    def action_modes(self) -> None:
        """Ask for one of all modes."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self._send(SetMode(name))

        self.app.push_screen(ask_mode(self._state.pending_mode or self._state.mode), chosen)

    def action_slots(self, by: int) -> None:
        self._order(lambda: orders.slots_order(self._state, by))

    def action_speed(self, by: int) -> None:
        self._order(lambda: orders.speed_order(self._state, by))

    def action_retry(self) -> None:
        self._send(Restart())

    def action_copy_hint(self) -> None:
        """Copy the command a failure suggests."""
        failure = self._state.failure
        if failure is not None and failure.hint:
            self.app.copy_to_clipboard(failure.hint)
            self.say("copied")

    # -- prompts ------------------------------------------------------------------------------

    def _most_tokens(self) -> int:
        return self._state.config.max_model_len - 1

    def action_prompt(self) -> None:
        self.query_one(PromptBar).line.focus()

    def action_chat(self) -> None:
        """Switch between chat and raw prompts."""
        model = self._state.model
        if model is not None and not model.has_chat_template:
            self.say("this model has no chat template: prompts go as they stand")
            return
        self._wants_chat = not self._wants_chat
        self.draw()
        self.say("prompts go through the chat template" if self._wants_chat else "prompts go as they stand")

    @on(ChatClicked)
    def _chat_clicked(self) -> None:
        self.action_chat()

    @on(PromptsEntered)
    def _prompts_entered(self, event: PromptsEntered) -> None:
        model = self._state.model
        chat = self._wants_chat and (model is None or model.has_chat_template)
        self._send(
            Submit(
                tuple(PromptRequest(prompt=p, max_tokens=event.max_tokens, chat=chat) for p in event.prompts)
            )
        )
        self._last_prompt = event.prompts[0] if len(event.prompts) == 1 else ""

    @on(LinesPasted)
    def _lines_pasted(self, event: LinesPasted) -> None:
        lines = tuple(line for line in event.text.split("\n") if line.strip())
        bar = self.query_one(PromptBar)

        def answered(how: str | None) -> None:
            was_sent = how == "many" and bar.enter(lines)
            if how is not None and not was_sent:
                bar.line.put(event.text)

        answers = [
            Answer(("enter", "p"), "Enter", f"{len(lines)} prompts, one a line", "many"),
            Answer(("o", "1"), "o", "one prompt with line breaks", "one"),
        ]
        self.app.push_screen(AskScreen("Paste", f"{len(lines)} lines were pasted.", answers), answered)

    @on(PromptLeft)
    def _prompt_left(self) -> None:
        self.say()
        self._focus_panel()

    def action_demo(self) -> None:
        """The tutorial's six requests; asks before sending them a second time."""
        if not self._demo_was_sent:
            self._submit_demo()
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self._submit_demo()

        question = "The tutorial's six requests were submitted before."
        self.app.push_screen(
            AskScreen("Demo", question, [yes("submit them once more", "d")]),
            answered,
        )

    def _submit_demo(self) -> None:
        from engine.workload import tutorial_workload

        self._demo_was_sent = True
        self._send(Submit(tuple(tutorial_workload())))
        self.say("the tutorial's six requests: raw, max tokens 6 to 300, end-of-text ignored")

    # -- requests -----------------------------------------------------------------------------

    def _request_ids(self) -> list[str]:
        """All requests in the order they stand on the screen."""
        state = self.follower.state
        ids = [slot.request_id for slot in state.slots]
        ids += [one.request_id for one in state.waiting] + [one.request_id for one in state.arriving]
        ids += [one for one in reversed(self.follower.ledger.finished) if one not in ids]
        return ids

    def action_select(self, by: int) -> None:
        """Select the request above or below."""
        ids = self._request_ids()
        if not ids:
            self.say("there is no request to select yet")
            return
        if self.selected in ids:
            at = min(len(ids) - 1, max(0, ids.index(self.selected) + by))
        else:
            at = 0 if by > 0 else len(ids) - 1
        self._select(ids[at])

    def _select(self, request_id: str) -> None:
        self.selected = request_id
        self.draw()

    @on(RequestSelected)
    def _request_selected(self, event: RequestSelected) -> None:
        self._select(event.request_id)

    def action_open(self) -> None:
        """Show the selected request's whole text."""
        if self.selected is None:
            self.say("↑↓ select a request first")
        else:
            self._open(self.selected)

    @on(RequestOpened)
    def _request_opened(self, event: RequestOpened) -> None:
        self._select(event.request_id)
        self._open(event.request_id)

    def _open(self, request_id: str) -> None:
        if request_id in self.follower.badges:
            self.app.push_screen(TextView(self.follower.frame(self.selected), request_id))
        else:
            self.say(f"{self._letter(request_id)} has no tokens yet")

    def _letter(self, request_id: str) -> str:
        if request_id in self.follower.badges:
            return self.follower.badges[request_id].letter
        return next((letter_of(a.index) for a in self._state.arriving if a.request_id == request_id), "it")

    def action_cancel(self) -> None:
        """Cancel the selected request; one that runs is asked about."""
        request_id = self.selected
        if request_id is None:
            self.say("↑↓ select a request first, then x cancels it")
            return
        letter = self._letter(request_id)
        if orders.is_waiting(self._state, request_id):
            self._send(Cancel(request_id))
            self.say(f"{letter} cancelled")
        elif not orders.is_running(self._state, request_id):
            self.say(f"{letter} has ended already")
        else:
            self._ask_cancel(request_id, letter)

    def _ask_cancel(self, request_id: str, letter: str) -> None:
        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self._send(Cancel(request_id))
                self.say(f"{letter} cancelled")

        question = f"{letter} is running. What it has produced so far stays in Finished."
        self.app.push_screen(AskScreen("Cancel", question, [yes(f"cancel {letter}", "x")]), answered)

    # -- the view -----------------------------------------------------------------------------

    def action_cells(self) -> None:
        """True mask cells, or folded."""
        mask = self.query_one(MaskGrid)
        mask.toggle_true_cells()
        self.say("true mask cells: arrows scroll" if mask.shows_true_cells else "mask folded")

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

    # -- keys ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tabs exist at small sizes only, and a retry only after a failure."""
        match action, parameters:
            case "tab", (int(number),):
                return self.is_mounted and number <= len(TABS[self.query_one(Deck).arrangement.kind])
            case (("retry" | "copy_hint"), _):
                return self._state.failure is not None
        return True

    def on_descendant_focus(self) -> None:
        """Other keys work now."""
        self._show_keys()

    def on_descendant_blur(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        self.query_one(KeyBar).show_typing(isinstance(self.focused, Input))

    @on(KeyClicked)
    async def _key_clicked(self, event: KeyClicked) -> None:
        if event.key is LEAVE_KEYS[0]:
            self._focus_panel()
        elif event.key in PROMPT_KEYS:
            await self.query_one(PromptBar).line.run_action(event.key.action)
        else:
            await (self.app if event.key in APP_KEYS else self).run_action(event.key.action)

    def on_key(self, event: events.Key) -> None:
        """Answer a letter that does nothing."""
        if event.key == "ctrl+c":
            return
        self.say()
        if event.is_printable and event.key not in self.active_bindings:
            self.say("/ to type, ? for all keys")
