"""The visible text of a token, from its bytes. Pure.

A token is any piece of bytes: a space, half a character, an escape sequence. Drawn here it shows what it is,
takes as many cells as it says, stays apart from its neighbours and can do nothing to the terminal:

    b" the" -> ·the      b"\\n\\t" -> ⏎⇥      b"\\x1b[2J" -> ␛[2J      b"\\xe2\\x80" -> ⟨E2 80⟩

The result is plain text: hand it on as a `Segment` or `Content`, never as markup (`[` is only a bracket).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

#: What stands for white space.
_WHITE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}
#: Characters that only say how their neighbours combine, or which skin a person has: terminals disagree on
#: their widths, and prose reads the same without them.
_JOINERS = (
    frozenset("\u200b\u200c\u200d\u2060\ufeff\u00ad")
    | {chr(code) for code in range(0xFE00, 0xFE10)}
    | {chr(code) for code in range(0x1F3FB, 0x1F400)}
)
#: Categories shown by code point: format (bidi controls), surrogate, private, unassigned, separators.
_BY_CODE_POINT = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))


class Span(NamedTuple):
    """A stretch of visible text; `is_mark` where it stands for something else than itself."""

    text: str
    is_mark: bool


def _stand_in(character: str) -> str | None:
    """What is drawn instead of a character; None: it can be drawn as it is."""
    if " " < character <= "~":
        return None
    if character in _WHITE:
        return _WHITE[character]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(character) in _BY_CODE_POINT or character in _JOINERS:
        return f"⟨U+{code:04X}⟩"
    return None


def _pieces(data: bytes) -> Iterator[str | bytes]:
    """`data` as stretches of text and of bytes that are not UTF-8 by themselves."""
    bad = b""
    while data:
        try:
            good, stop, resume = data.decode(), len(data), len(data)
        except UnicodeDecodeError as error:
            good, stop, resume = data[: error.start].decode(), error.start, error.end
        if good:
            if bad:
                yield bad
            bad = b""
            yield good
        bad += data[stop:resume]
        data = data[resume:]
    if bad:
        yield bad


@lru_cache(maxsize=16384)
def spans(data: bytes) -> tuple[Span, ...]:
    """The visible text of a token's bytes, with the stand-ins apart so that they can be drawn dimmer."""
    found: list[Span] = []

    def add(text: str, is_mark: bool) -> None:
        if found and found[-1].is_mark == is_mark:
            text = found.pop().text + text
        found.append(Span(text, is_mark))

    for piece in _pieces(data):
        if isinstance(piece, bytes):
            add(f"⟨{piece.hex(' ').upper()}⟩", True)
            continue
        at_start = True
        for character in piece:
            stand_in = _stand_in(character)
            if stand_in is not None:
                add(stand_in, True)
            else:
                # A combining mark with nothing before it would land on the neighbouring cell.
                if at_start and unicodedata.category(character)[0] == "M":
                    add("◌", True)
                add(character, False)
            at_start = stand_in is not None
    return tuple(found) or (Span("∅", True),)


def visible(data: bytes) -> str:
    """The visible text of a token's bytes; `∅` of none."""
    return "".join(span.text for span in spans(data))


def prose(text: str) -> str:
    """Running text made harmless on one line: spaces stay, line breaks and controls show, joiners go.

    For whole outputs and prompts, where `visible` would dot every space.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    for character in text:
        if character == " " or character == "\u00a0":
            shown.append(" ")
        elif character not in _JOINERS:
            shown.append(_stand_in(character) or character)
    return "".join(shown)


def cell_width(text: str) -> int:
    """Terminal cells that `text` takes."""
    return cell_len(text)


def clip(text: str, cells: int) -> str:
    """The beginning of `text` in at most `cells` cells, `…` where something was cut."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…" if cells > 0 else ""


def clip_left(text: str, cells: int) -> str:
    """The end of `text` in at most `cells` cells, `…` where something was cut."""
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    start, width = len(text), 1
    while start > 0 and width + cell_len(text[start - 1]) <= cells:
        start -= 1
        width += cell_len(text[start])
    while start < len(text) and unicodedata.category(text[start])[0] == "M":
        start += 1  # a mark must not combine with the ellipsis
    return "…" + text[start:]
