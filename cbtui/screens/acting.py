"""What the keys and the prompt do to the engine: each becomes a command in the queue, or a word of answer.

The base of the main screen; draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from textual import on
from textual.screen import Screen

from cbtui import orders
from cbtui.following.follower import Follower
from cbtui.following.foresight import Foresight
from cbtui.following.frame import Frame
from cbtui.following.link import Link
from cbtui.looks.tokens import prose
from cbtui.options import LaunchOptions
from cbtui.screens.confirm import Answer, AskScreen, yes
from cbtui.screens.live_settings import LiveSettings
from cbtui.screens.modes import ask_mode
from cbtui.telling.first_prompts import hint
from cbtui.telling.naming import letter_of
from cbtui.telling.request_text import copied, output_text
from cbtui.telling.words import count
from cbtui.widgets.finished import finished_at
from cbtui.widgets.messages import RequestOpened, RequestSelected
from cbtui.widgets.prompt_bar import ChatClicked, LinesPasted, PromptBar, PromptsEntered
from cbtui.widgets.text_view import TextView
from engine.attach.source import OTHERS, OWN
from engine.live.commands import Cancel, Command, Restart, SetMode, Step, Submit
from engine.live.state import EngineState

#: What a pause means before there is anything to pause.
PAUSED_EARLY = "paused: once the model is there nothing runs before space or s"


class ActingScreen(Screen[None]):
    """See the module's words.

    Args:
        link: the three objects shared with the engine.
        options: what the command line said.
    """

    def __init__(self, link: Link, options: LaunchOptions) -> None:
        super().__init__()
        self.link = link
        self.options = options
        self.follower = Follower(link.mailbox, link.history, options.stories)
        self.selected: str | None = None
        #: The recorded step in view; None: now.
        self.shown: int | None = None
        self.wants_chat = not options.raw
        self._last_prompt = ""
        self._hints_given: set[str] = set()
        self._demo_was_sent = False
        self._rejections_seen = 0
        #: Ended requests that were looked through for prompts a server refused.
        self._ends_seen = 0
        self._foresight = Foresight()
        #: Whether what was said last still is so; None: it stays true.
        self._notice_holds: Callable[[EngineState], bool] | None = None

    def draw(self) -> None:
        """Draw the newest frame."""
        raise NotImplementedError

    # -- the engine ---------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """The newest state, which may be newer than what is drawn."""
        return self.link.mailbox.latest()

    @property
    def state_to_come(self) -> EngineState:
        """The same once the engine has taken in what keys have asked for: what the next key counts from."""
        return self._foresight.of(self.state)

    def frame(self) -> Frame:
        """The picture of where the view stands."""
        return self.follower.frame(self.selected, self.shown)

    def _send(self, command: Command, words: str = "") -> None:
        """Put a command; answer with `words`, or with where it acts while the view looks back."""
        self._last_prompt = ""
        self._foresight.note(self.state, command)
        self.link.commands.put(command)
        if self.shown is None:
            self.say(words)
        elif words := orders.done_words(command) or words:
            self.say_at_now(words)

    def say_at_now(self, words: str) -> None:
        """Say what was done, and that it was done now, while an earlier step is in view."""
        self.say(f"{words} at step {self.state.step:,}, . for live")

    def _order(self, make: Callable[[], Command]) -> None:
        try:
            command = make()
        except orders.NoOrder as exc:
            self.say(str(exc))
        else:
            words = orders.pending_words(self.state, command)
            self._send(command, words)
            if words and self.shown is None:
                step = self.state.step
                self._notice_holds = lambda state: state.paused and state.step == step

    def say(self, text: str = "") -> None:
        """Answer a key in words, beside the prompt."""
        self._notice_holds = None
        self.query_one(PromptBar).say(text)

    def drop_stale_notice(self, state: EngineState) -> None:
        """Take back what was said once it is no longer so."""
        if self._notice_holds is not None and not self._notice_holds(state):
            self.say()

    @property
    def is_paused(self) -> bool:
        """Whether the engine stands still, or will once it has taken in what keys have asked for."""
        return self.state_to_come.paused

    def action_pause(self) -> None:
        self._order(lambda: orders.pause_order(self.state_to_come))
        if self.state.status == "loading":
            is_paused = self.state_to_come.paused
            self.say(PAUSED_EARLY if is_paused else "runs as soon as the model is there")

    def action_step(self) -> None:
        """One step; whoever steps wants to see it."""
        is_back = self.shown is not None
        self.shown = None
        self._send(Step())
        if is_back:
            self.draw()

    def action_mode(self) -> None:
        self._order(lambda: orders.mode_order(self.state_to_come))

    def action_modes(self) -> None:
        """Ask for one of all modes."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self._order(lambda: SetMode(name))

        self.app.push_screen(ask_mode(self.state.pending_mode or self.state.mode), chosen)

    def action_slots(self, by: int) -> None:
        self._order(lambda: orders.slots_order(self.state_to_come, by))

    def action_speed(self, by: int) -> None:
        self._order(lambda: orders.speed_order(self.state_to_come, by))

    def action_settings(self) -> None:
        """Every setting that can change while the engine runs."""
        self.app.push_screen(LiveSettings(self.state, self._send))

    def action_retry(self) -> None:
        self._send(Restart())

    def action_copy(self) -> None:
        """Copy the selected request's output; after a failure, the command it suggests."""
        failure = self.state.failure
        if failure is not None and failure.hint:
            self.app.copy_to_clipboard(failure.hint)
            self.say(f"copied to the clipboard: {failure.hint}")
            return
        ledger, request_id = self.follower.ledger, self.selected
        if request_id is None or request_id not in ledger.stories:
            self.say("↑↓ select a request first, then y copies its output")
            return
        text = output_text(ledger, ledger[request_id], ledger.step)
        self.app.copy_to_clipboard(text)
        self.say(copied(self._letter(request_id), text))

    def say_rejections(self, state: EngineState) -> None:
        rejection = state.rejection
        if rejection is None or rejection.number <= self._rejections_seen:
            return
        self._rejections_seen = rejection.number
        bar = self.query_one(PromptBar)
        if self._last_prompt:
            bar.put_back(self._last_prompt)
            self._last_prompt = ""
        bar.say(rejection.message, is_error=True)

    def say_refusals(self, state: EngineState) -> None:
        """Prompts that a server said no to: why, beside the field, with the text back in it."""
        ledger = self.follower.ledger
        new = ledger.num_finished - self._ends_seen
        self._ends_seen = ledger.num_finished
        if new <= 0 or not state.is_attached:
            return
        stories = [ledger[one] for one in ledger.finished[-new:] if one in ledger.stories]
        refused = [
            (story, story.finish)
            for story in stories
            if story.finish and story.finish.reason == "error" and story.request_id.startswith(OWN)
        ]
        if not refused:
            return
        bar = self.query_one(PromptBar)
        story, finish = refused[-1]
        if len(refused) == 1 and finish.slot is None:
            bar.put_back(story.request.prompt_text)
        who = self._letter(story.request_id) if len(refused) == 1 else count(len(refused), "prompt")
        bar.say(f"{who} failed: {prose(finish.error)}", is_error=True)

    # -- prompts ------------------------------------------------------------------------------

    def most_tokens(self) -> int:
        return self.state.config.max_model_len - 1

    def action_prompt(self) -> None:
        self.query_one(PromptBar).line.focus()

    def action_chat(self) -> None:
        """Switch between chat and raw prompts."""
        model = self.state.model
        if model is not None and not model.has_chat_template:
            self.say("this model has no chat template: prompts go as they stand")
            return
        self.wants_chat = not self.wants_chat
        self.draw()
        self.say("prompts go through the chat template" if self.wants_chat else "prompts go as they stand")

    @on(ChatClicked)
    def _chat_clicked(self) -> None:
        self.action_chat()

    @on(PromptsEntered)
    def _prompts_entered(self, event: PromptsEntered) -> None:
        model = self.state.model
        has_template = model is None or model.has_chat_template
        chat = self.wants_chat and has_template
        asked = [
            msgspec.structs.replace(self.options.asked, prompt=p, max_tokens=event.max_tokens, chat=chat)
            for p in event.prompts
        ]
        only = event.prompts[0] if len(event.prompts) == 1 else ""
        words = hint(only, is_chat=chat, has_other=has_template) if only and self.shown is None else ""
        self._send(Submit(tuple(asked)), "" if words in self._hints_given else words)
        self._hints_given.add(words)
        self._last_prompt = only

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

    def action_demo(self) -> None:
        """The tutorial's six requests; asks before sending them a second time."""
        if not self._demo_was_sent:
            self.submit_demo()
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.submit_demo()

        question = "The tutorial's six requests were submitted before."
        self.app.push_screen(
            AskScreen("Demo", question, [yes("submit them once more", "d")]),
            answered,
        )

    def submit_demo(self) -> None:
        from engine.workload import tutorial_workload

        self._demo_was_sent = True
        words = "the tutorial's six requests: raw, max tokens 6 to 300, end-of-text ignored"
        self._send(Submit(tuple(tutorial_workload())), words)

    # -- requests -----------------------------------------------------------------------------

    def _request_ids(self) -> list[str]:
        """All requests in the order they stand on the screen."""
        frame = self.frame()
        record, state = frame.record, frame.state
        if record is not None and not frame.is_live:
            ids = [slot.request_id for slot in record.slots]
            ids += [one.request_id for one in record.waiting]
        else:
            ids = [slot.request_id for slot in state.slots]
            ids += [one.request_id for one in state.waiting] + [one.request_id for one in state.arriving]
        ids += [one for one in finished_at(frame) if one not in ids]
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
            self.app.push_screen(TextView(self.frame(), request_id))
        elif any(one.request_id == request_id for one in self.state.arriving):
            self.say(f"{self._letter(request_id)} has no tokens yet")
        else:
            self.say(f"it is no longer kept: only the newest {self.options.stories:,} are (--stories)")

    def _letter(self, request_id: str) -> str:
        if request_id in self.follower.badges:
            return self.follower.badges[request_id].letter
        return next((letter_of(a.index) for a in self.state.arriving if a.request_id == request_id), "it")

    def action_cancel(self) -> None:
        """Cancel the selected request; one that runs is asked about."""
        request_id = self.selected
        if request_id is None:
            self.say("↑↓ select a request first, then x cancels it")
            return
        letter = self._letter(request_id)
        if self.state.is_attached and request_id.startswith(OTHERS):
            self.say(f"another client sent {letter}: only what was sent from here can be taken back")
        elif orders.is_waiting(self.state, request_id):
            self._send(Cancel(request_id), f"{letter} cancelled")
        elif not orders.is_running(self.state, request_id):
            self.say(f"{letter} has ended already")
        else:
            self._ask_cancel(request_id, letter)

    def _ask_cancel(self, request_id: str, letter: str) -> None:
        def answered(is_yes: bool | None) -> None:
            if is_yes and not orders.is_running(self.state, request_id):
                self.say(f"{letter} has ended meanwhile")
            elif is_yes:
                self._send(Cancel(request_id), f"{letter} cancelled")

        question = f"{letter} is running. What it has produced so far stays in Finished."
        self.app.push_screen(AskScreen("Cancel", question, [yes(f"cancel {letter}", "x")]), answered)
