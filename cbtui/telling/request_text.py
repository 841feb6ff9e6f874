"""A request's text at a step: its prompt, its output so far, and which prompt tokens a template added.

Pure. Decodes only as much as is shown, because a screen asks for every slot at every frame.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from cbtui.looks.pieces import Line
from cbtui.looks.tokens import cell_width, clip, clip_left, prose
from cbtui.telling.words import count
from engine.stream.ledger import Ledger, RequestStory


def decode_output(ledger: Ledger, token_ids: list[int], *, is_whole: bool) -> str:
    """Text of output tokens. While more may come, a character that is not complete yet is left out."""
    data = b"".join(ledger.token_bytes.get(token, b"") for token in token_ids)
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=is_whole)


def output_text(ledger: Ledger, story: RequestStory, step: int) -> str:
    """The whole output up to and including `step`; what stopped a finished request is not part of it."""
    if story.is_finished_at(step):
        return ledger.output_text(story)
    return decode_output(ledger, story.outputs_at(step), is_whole=story.is_finished_at(step))


def copied(letter: str, text: str) -> str:
    """What is said when the output `text` of the request `letter` was copied."""
    return f"{letter}'s output is in the clipboard, {count(len(text), 'character')} (if the terminal lets it)"


def newest_text(ledger: Ledger, story: RequestStory, step: int, cells: int) -> Line:
    """The newest end of prompt and output in `cells` cells: the prompt dim, the output plain.

    A raw continuation follows its prompt directly; an answer in chat stands behind `→`.
    """
    outputs = story.outputs_at(step)
    # A token is a byte at least (but for specials), so this many fill the line; the first character
    # of the cut may be broken and lies outside anyway.
    shown = outputs[-(cells + 8) :]
    output = prose(decode_output(ledger, shown, is_whole=story.is_finished_at(step)))
    is_cut = len(shown) < len(outputs)
    prompt = prose(story.request.prompt_text[-4 * (cells + 8) :])
    if story.request.num_template_tokens and outputs:
        prompt += " → "
    room = cells - cell_width(output)
    if is_cut or room <= 1:
        text = clip_left("…" + output.lstrip("�") if is_cut else prompt + output, cells)
        return ((text, ""),)
    if not outputs:
        return ((clip(prompt, cells), "dim"),)
    return tuple(piece for piece in ((clip_left(prompt, room), "dim"), (output, "")) if piece[0])


def beginning_text(ledger: Ledger, story: RequestStory, step: int, cells: int) -> Line:
    """The beginning of the output in `cells` cells, after a short end of the prompt for orientation."""
    outputs = story.outputs_at(step)
    if len(outputs) <= cells + 8:
        output = prose(output_text(ledger, story, step))
    else:
        output = prose(decode_output(ledger, outputs[: cells + 8], is_whole=True))
    if not output:
        return ((clip(prose(story.request.prompt_text), cells), "dim"),)
    prompt = clip_left(prose(story.request.prompt_text), 16 if cells >= 48 else 0)
    if story.request.num_template_tokens and prompt:
        prompt += " → "
    if not prompt:
        return ((clip(output.lstrip(), cells), ""),)
    return ((prompt, "dim"), (clip(output, cells - cell_width(prompt)), ""))


@dataclass(frozen=True, slots=True)
class PromptParts:
    """A prompt as the model got it: the template's text before and after the user's own."""

    before: str
    own: str
    after: str
    num_tokens: int
    num_template_tokens: int

    @property
    def count(self) -> str:
        """`31 = 26 template + 5 yours`, or the number alone where there is no template."""
        if not self.num_template_tokens:
            return f"{self.num_tokens:,}"
        own = self.num_tokens - self.num_template_tokens
        return f"{self.num_tokens:,} = {self.num_template_tokens:,} template + {own:,} yours"


def prompt_parts(ledger: Ledger, story: RequestStory) -> PromptParts:
    """Tell the template's text from the user's own: the user's stands last in what was fed."""
    request = story.request
    own = request.prompt_text
    before = after = ""
    if request.num_template_tokens:
        whole = ledger.decode(request.prompt_token_ids)
        # Templates strip the user's text, so look for what is left of it.
        at = whole.rfind(own.strip())
        if at >= 0:
            before, after = whole[:at], whole[at + len(own.strip()) :]
            own = own.strip()
    return PromptParts(before, own, after, len(request.prompt_token_ids), request.num_template_tokens)
