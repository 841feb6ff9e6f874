"""Writes one line of a wide drawing, keeping only the columns of a window. Pure.

Long stretches cost nothing: a fill of ten thousand columns is cut to the window before it becomes text.
"""

from __future__ import annotations

from rich.cells import split_text

from cbtui.looks.pieces import Line, Piece
from cbtui.looks.tokens import cell_width, clip


class LineWriter:
    """Columns [start, stop) of a line that is written from the left."""

    def __init__(self, start: int = 0, stop: int = 1 << 30) -> None:
        self.column = 0
        self._start = start
        self._stop = stop
        self._pieces: list[Piece] = []

    def fill(self, pattern: str, columns: int, style: str) -> None:
        """Repeat `pattern` (one-cell characters) over so many columns."""
        first = max(self.column, self._start)
        last = min(self.column + columns, self._stop)
        if first < last:
            phase = (first - self.column) % len(pattern)
            repeats = (last - first) // len(pattern) + 2
            self._add((pattern * repeats)[phase : phase + last - first], style)
        self.column += max(0, columns)

    def text(self, text: str, style: str, columns: int | None = None) -> None:
        """Write text of one-cell characters; with `columns`, clipped or filled with spaces to that many."""
        if columns is not None:
            text = clip(text, columns)
            text += " " * (columns - cell_width(text))
        size = cell_width(text)
        first = max(self.column, self._start)
        last = min(self.column + size, self._stop)
        if first < last:
            self._add(text if last - first == size else text[first - self.column : last - self.column], style)
        self.column += size

    def line(self) -> Line:
        """What was written within the window."""
        return tuple(self._pieces)

    def _add(self, text: str, style: str) -> None:
        if self._pieces and self._pieces[-1][1] == style:
            text = self._pieces.pop()[0] + text
        self._pieces.append((text, style))


def merged(pieces: list[Piece]) -> Line:
    """Pieces as a line: empty ones dropped, neighbours of one style joined."""
    line: list[Piece] = []
    for text, style in pieces:
        if line and line[-1][1] == style:
            line[-1] = (line[-1][0] + text, style)
        elif text:
            line.append((text, style))
    return tuple(line)


def overlaid(line: Line, column: int, text: str, style: str) -> Line:
    """A line with `text` written over its cells from `column` on; shorter lines are filled up to there."""
    end = column + cell_width(text)
    before: list[Piece] = []
    after: list[Piece] = []
    at = 0
    for part, name in line:
        size = cell_width(part)
        if at < column:
            before.append((split_text(part, min(size, column - at))[0], name))
        if at + size > end:
            after.append((split_text(part, max(0, end - at))[1], name))
        at += size
    if at < column:
        before.append((" " * (column - at), ""))
    return merged([*before, (text, style), *after])


def text_between(line: Line, start: int, stop: int) -> str:
    """The text of a line's cells [start, stop), without styles."""
    text = "".join(part for part, _ in line)
    return split_text(split_text(text, stop)[0], start)[1]
