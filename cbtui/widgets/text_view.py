"""One request over the screen: its prompt, what it has written so far, and beside it all that is known of it.

Goes on streaming while it is open: the screen hands it frames like any panel.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content, Span
from textual.style import Style as ContentStyle
from textual.widgets import Static

from cbtui.following.frame import Frame
from cbtui.keys import TEXT_KEYS, bindings
from cbtui.looks.colours import badge_content_style
from cbtui.looks.tokens import prose
from cbtui.screens.overlay import Overlay
from cbtui.telling.request_text import copied, output_text, prompt_parts
from cbtui.telling.words import seconds
from cbtui.widgets.finished import course, ending
from cbtui.widgets.request_facts import RequestFacts


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
        parts = [ending(story), course(story, frame.step), prompt]
        if story.ttft_s is not None:
            parts.append(f"first token after {seconds(story.ttft_s)}")
        if story.finish.error:
            parts.append(prose(story.finish.error))
        return " · ".join(parts)
    slots = frame.state.slots if frame.is_live or frame.record is None else frame.record.slots
    slot = next((one.slot for one in slots if one.request_id == request_id), None)
    where = "waiting" if slot is None else f"in slot {slot}"
    when = "when last seen" if frame.is_live and frame.state.is_out_of_sight else "so far"
    return f"{made:,}/{story.request.max_tokens:,} tokens {when}, {where} · {prompt}"


#: Of a request of an observed server that tells neither prompt nor output.
NO_TEXT = "it is not among what was told"


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
    if not text.strip() and frame.state.provenance is not None:
        whose = frame.state.provenance
        why = whose.why_absent("prompt_tokens") or whose.why_absent("output_tokens") or NO_TEXT
        return Content.styled(f"No text to show: {prose(why)}.", dim)
    return Content(text, spans=spans)


#: From this width on the facts stand beside the text, not below it.
WIDE = 100


class TextView(Overlay):
    """Text and facts of one request. Dismisses itself on Esc, q or enter."""

    DEFAULT_CSS = """
    TextView {
        align: center middle;
        & > Vertical {
            width: 94%;
            max-width: 180;
            height: 88%;
            background: $surface;
            border: round $accent;
            padding: 0 1;
        }
        & .text-facts { color: $foreground 60%; height: auto; max-height: 2; margin-bottom: 1; }
        & .text-parts { layout: horizontal; height: 1fr; }
        & VerticalScroll { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; }
        & RequestFacts { width: 58; height: 1fr; padding: 0 0 0 1; border-left: solid $border-blurred; }
        &.-narrow .text-parts { layout: vertical; }
        &.-narrow RequestFacts {
            width: 1fr; height: 3fr; padding: 0; border-left: none; border-top: solid $border-blurred;
        }
        &.-narrow VerticalScroll { height: 2fr; }
        & VerticalScroll:focus, & RequestFacts:focus { background-tint: $foreground 4%; }
    }
    """
    KEYS = (*TEXT_KEYS, *Overlay.KEYS)
    HINTS = ("Esc closes", "↑↓ scroll", "Tab text/facts", "[ ] steps", "y copies it", "space pause", "s step")
    BINDINGS = bindings(TEXT_KEYS)

    def __init__(self, frame: Frame, request_id: str) -> None:
        super().__init__(frame)
        self.request_id = request_id
        #: Kept, as the letter is: both may be dropped while this is open.
        self._story = frame.ledger[request_id]
        self._letter = frame.badges[request_id].letter
        self._drawn: tuple[int, str] | None = None

    def compose(self) -> ComposeResult:
        """One line on how it went above; the text, and all else beside it."""
        with Vertical():
            yield Static(classes="text-facts", markup=False)
            with Container(classes="text-parts"):
                with VerticalScroll(can_focus=True):
                    yield Static(classes="text-whole", markup=False)
                yield RequestFacts(self.request_id)

    def on_mount(self) -> None:
        """Draw the frame it was opened with."""
        self.set_class(self.app.size.width < WIDE, "-narrow")
        self.query_one(VerticalScroll).focus()
        self.show(self._frame)

    def on_resize(self) -> None:
        self.set_class(self.app.size.width < WIDE, "-narrow")
        self.call_after_refresh(self.hint, self.query_one(Vertical))

    def show(self, frame: Frame) -> None:
        """Draw a frame; nothing happens when all is the same, or when its story is no longer kept."""
        if self.request_id not in frame.ledger.stories:
            return
        self._frame, self._story = frame, frame.ledger[self.request_id]
        if self.is_attached and self.query(VerticalScroll):
            self._draw(frame)

    def _draw(self, frame: Frame) -> None:
        story = frame.ledger[self.request_id]
        badge = frame.badges[self.request_id]
        where = "" if frame.is_live else f" · step {frame.step:,} of {frame.state.step:,}"
        self.query_one(Vertical).border_title = Content.assemble(
            (f" {badge.letter} ", badge_content_style(badge)), f" request{where}"
        )
        words = facts(frame, self.request_id)
        state = (len(story.outputs_at(frame.step)), words)
        self.query_one(RequestFacts).show(frame)
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
        """Copy the output, and say where it went."""
        text = output_text(self._frame.ledger, self._story, self._frame.step)
        self.app.copy_to_clipboard(text)
        self.notify(copied(self._letter, text), markup=False)
