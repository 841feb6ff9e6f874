"""A request's whole text over the screen: its prompt, what it has written so far, and how it went.

Goes on streaming while it is open: the screen hands it frames like any panel.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content, Span
from textual.screen import ModalScreen
from textual.style import Style as ContentStyle
from textual.widgets import Static

from cbtui.colours import badge_content_style
from cbtui.frame import Frame
from cbtui.request_text import output_text, prompt_parts
from cbtui.tokens import prose
from cbtui.widgets.finished import course, ending
from cbtui.words import seconds

_HINT = "Esc closes · ↑↓ scroll · y copies the output"


def harmless(text: str) -> str:
    """Text safe to draw with its line breaks; other control characters become visible."""
    return "\n".join(prose(line) for line in text.replace("\r\n", "\n").split("\n"))


def facts(frame: Frame, request_id: str) -> str:
    """One line on how the request went or goes."""
    story = frame.ledger[request_id]
    step = frame.record.step if frame.record else 0
    prompt = f"prompt {prompt_parts(frame.ledger, story).count} tokens"
    made = len(story.outputs_at(step))
    if story.finish is not None and (frame.is_live or story.is_finished_at(step)):
        parts = [ending(story), course(story), prompt]
        if story.ttft_s is not None:
            parts.append(f"first token after {seconds(story.ttft_s)}")
        if story.finish.error:
            parts.append(prose(story.finish.error))
        return " · ".join(parts)
    where = f"in slot {story.slot}" if story.first_step and story.first_step <= step else "waiting"
    return f"{made:,}/{story.request.max_tokens:,} tokens so far, {where} · {prompt}"


def whole_text(frame: Frame, request_id: str, dim: ContentStyle, strong: ContentStyle) -> Content:
    """Prompt and output in full: the prompt dim, a template's own tokens dimmest in brackets of their own."""
    story = frame.ledger[request_id]
    step = frame.record.step if frame.record else 0
    parts = prompt_parts(frame.ledger, story)
    output = harmless(output_text(frame.ledger, story, step))
    pieces: list[tuple[str, ContentStyle | None]] = []
    if parts.before or parts.after:
        pieces += [(harmless(parts.before), dim), (harmless(parts.own), strong), (harmless(parts.after), dim)]
    elif parts.num_template_tokens:
        pieces += [(harmless(parts.own), strong), ("\n\n", None)]
    else:
        pieces.append((harmless(parts.own), strong))
    pieces.append((output, None))
    text, spans = "", []
    for piece, style in pieces:
        if style is not None and piece:
            spans.append(Span(len(text), len(text) + len(piece), style))
        text += piece
    return Content(text, spans=spans)


class TextView(ModalScreen[None]):
    """The whole text of one request. Dismisses itself on Esc, q or enter."""

    DEFAULT_CSS = """
    TextView {
        align: center middle;
        & > Vertical {
            width: 90%;
            max-width: 110;
            height: 80%;
            background: $surface;
            border: round $accent;
            padding: 0 1;
        }
        & .text-facts { color: $foreground 60%; margin-bottom: 1; }
        & VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    }
    """
    BINDINGS = [
        Binding("escape,q,enter", "dismiss", "Close", id="text.close", tooltip="Back to the screen"),
        Binding("y", "copy", "Copy", id="text.copy", tooltip="Copy the output to the clipboard"),
    ]

    def __init__(self, frame: Frame, request_id: str) -> None:
        super().__init__()
        self.request_id = request_id
        self._frame = frame
        self._drawn: tuple[int, str] | None = None

    def compose(self) -> ComposeResult:
        """Facts above, the text below."""
        with Vertical():
            yield Static(classes="text-facts", markup=False)
            with VerticalScroll(can_focus=True):
                yield Static(classes="text-whole", markup=False)

    def on_mount(self) -> None:
        """Draw the frame it was opened with."""
        box = self.query_one(Vertical)
        badge = self._frame.badges[self.request_id]
        box.border_title = Content.assemble(
            (f" {badge.letter} ", badge_content_style(badge)), " prompt and output"
        )
        box.border_subtitle = _HINT
        self.query_one(VerticalScroll).focus()
        self.show(self._frame)

    def show(self, frame: Frame) -> None:
        """Draw a frame; nothing happens when the text is the same."""
        self._frame = frame
        if self.is_attached and self.query(VerticalScroll):
            self._draw(frame)

    def _draw(self, frame: Frame) -> None:
        story = frame.ledger[self.request_id]
        step = frame.record.step if frame.record else 0
        words = facts(frame, self.request_id)
        state = (len(story.outputs_at(step)), words)
        if state == self._drawn:
            return
        self._drawn = state
        self.query_one(".text-facts", Static).update(Content(words))
        dim = ContentStyle(dim=True, italic=True)
        text = whole_text(frame, self.request_id, dim, ContentStyle(dim=True))
        scroll = self.query_one(VerticalScroll)
        follows = scroll.max_scroll_y > 0 and scroll.scroll_offset.y >= scroll.max_scroll_y
        self.query_one(".text-whole", Static).update(text)
        if follows:
            # A reader at the end stays at the end while the text grows.
            scroll.scroll_end(animate=False)

    def action_copy(self) -> None:
        """Copy the output."""
        step = self._frame.record.step if self._frame.record else 0
        story = self._frame.ledger[self.request_id]
        self.app.copy_to_clipboard(output_text(self._frame.ledger, story, step))
        self.notify("output copied")
