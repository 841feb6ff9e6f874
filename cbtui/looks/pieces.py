"""Styled lines as plain data: what the pure renderers make and the line widgets draw.

A line is a tuple of (text, style name) pieces, so two frames' lines compare cheaply and tests read the
text alone. A style name is a word of `STYLES`, or `badge:#rrggbb` / `fill:#rrggbb` / `ink:#rrggbb` for
a request's colour. Widths are terminal cells, never `len`. Knows nothing of widgets or records.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import split_text

from cbtui.looks.tokens import cell_width, clip

Piece = tuple[str, str]
Line = tuple[Piece, ...]

#: Style names that mean something by themselves; the widgets give them the theme's colours.
STYLES = ("", "dim", "strong", "accent", "warn", "track", "bar", "chip", "cursor")
#: A number and its unit stay on one line.
_UNITS = ("s", "ms", "min", "%", "MB")


def fit(text: str, cells: int) -> str:
    """A text in exactly `cells` cells: clipped, or filled with spaces."""
    text = clip(text, cells)
    return text + " " * (cells - cell_width(text))


def plain(line: Line) -> str:
    """A line's text without styles."""
    return "".join(text for text, _ in line)


def line_width(line: Line) -> int:
    """Cells a line takes."""
    return sum(cell_width(text) for text, _ in line)


def join(parts: Iterable[Line], gap: str = "  ") -> Line:
    """Lines side by side with a gap between; empty ones leave no gap."""
    joined: list[Piece] = []
    for part in parts:
        if not part:
            continue
        if joined:
            joined.append((gap, ""))
        joined.extend(part)
    return tuple(joined)


def say(*parts: str | Piece | Line) -> Line:
    """A line from texts, pieces and lines."""
    line: list[Piece] = []
    for part in parts:
        if isinstance(part, str):
            line.append((part, ""))
        elif part and isinstance(part[0], str):
            line.append(part)
        else:
            line.extend(part)
    return tuple(line)


def clip_line(line: Line, cells: int) -> Line:
    """The beginning of a line in at most `cells` cells, `…` last where something is cut off."""
    if line_width(line) <= cells:
        return line
    kept: list[Piece] = []
    room = cells
    for text, style in line:
        size = cell_width(text)
        if size >= room:
            # Something follows or this piece is too long: either way the last cell says so.
            cut = clip(text, room) if size > room else split_text(text, max(0, room - 1))[0] + "…"
            kept.append((cut, style))
            break
        kept.append((text, style))
        room -= size
    return tuple(kept)


def spread(left: Line, right: Line, cells: int) -> Line:
    """`left` at the left edge and `right` at the right edge of `cells` cells; `left` gives way."""
    right = clip_line(right, cells)
    size = line_width(right)
    left = clip_line(left, max(0, cells - size - 1))
    return (*left, (" " * (cells - size - line_width(left)), ""), *right)


def wrap(line: Line, cells: int, indent: int = 0) -> list[Line]:
    """A line broken at spaces into lines of at most `cells` cells; those after the first are indented."""
    lines: list[Line] = []
    current: list[Piece] = []
    used = 0
    for word, space in _words(line):
        size = line_width(word)
        gap = space if current and used > 0 else 0
        if current and used + gap + size > cells:
            lines.append(tuple(current))
            current, used, gap = ([(" " * indent, "")] if indent else []), indent, 0
        if gap:
            current.append((" ", ""))
        word = clip_line(word, max(1, cells - used - gap))
        current.extend(word)
        used += gap + line_width(word)
    if current:
        lines.append(tuple(current))
    return [_merged(one) for one in lines] or [()]


def _words(line: Line) -> Iterable[tuple[Line, int]]:
    """The words of a line, each with 1 if a space stands before it. Badges stay whole."""
    word: list[Piece] = []
    space = 0
    for text, style in line:
        if style.startswith("badge:"):
            word.append((text, style))
            continue
        for number, part in enumerate(text.split(" ")):
            if number and word and part.rstrip(".,;:)") in _UNITS:
                word.append((" ", style))
            elif number:
                if word:
                    yield tuple(word), space
                word, space = [], 1
            if part:
                word.append((part, style))
    if word:
        yield tuple(word), space


def _merged(line: Line) -> Line:
    """Neighbouring pieces of one style as one piece; spaces take the style before them."""
    merged: list[Piece] = []
    for text, style in line:
        if merged and (merged[-1][1] == style) and not style.startswith("badge:"):
            merged[-1] = (merged[-1][0] + text, style)
        else:
            merged.append((text, style))
    return tuple(merged)
