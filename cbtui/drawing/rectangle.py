"""Draws a padded step as the rectangle it is: a line a row, columns aligned, padding as `╳`. Pure.

Where it is too wide its middle is left out; unfolded it is cut into bands of columns, one under the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.drawing.row_cursor import Place
from cbtui.drawing.token_cells import SequenceCells
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, clip_line, line_width

#: Cells a column may take; a longer token is clipped.
_COLUMN_LIMIT = 16
_PADDING: Line = (("╳", "padding"),)


def rectangle_lines(cells: list[SequenceCells], length: int, width: int) -> list[Line]:
    """One line a row of the `[B, length]` tensor; middle columns are left out where they do not fit."""
    head = max(cell.head_width for cell in cells)
    tail = max(cell.tail_width for cell in cells)
    sizes = _sizes(cells, length)
    shown = _shown(sizes, width - head - tail - 2)
    return [clip_line(_row(cell, head, sizes, shown), width) for cell in cells]


def rectangle_places(cells: list[SequenceCells], length: int, width: int) -> list[Place]:
    """Where `rectangle_lines` draws its tokens, padding apart."""
    head = max(cell.head_width for cell in cells)
    tail = max(cell.tail_width for cell in cells)
    sizes = _sizes(cells, length)
    shown = _shown(sizes, width - head - tail - 2)
    places = []
    for line, cell in enumerate(cells):
        x = head + 1
        for number, column in enumerate(shown):
            if column is None:
                after = shown[number + 1]
                x += len(f"⟨+{(length if after is None else after) - number:,}⟩") + 1
                continue
            token = column - cell.segment.q_start
            if 0 <= token < len(cell.tokens) and x + sizes[column] <= width:
                places.append(Place(line, x, min(sizes[column], cell.widths[token]), line, token))
            x += sizes[column] + 1
    return places


def unfolded_lines(cells: list[SequenceCells], length: int, width: int) -> list[Line]:
    """Every column of the `[B, length]` tensor: bands of as many as fit, each with a line a row."""
    head, sizes = max(cell.head_width for cell in cells), _sizes(cells, length)
    lines: list[Line] = []
    for band in _bands(cells, head, sizes, width):
        if lines:
            lines.append(())
        has_tail = band[-1] == length - 1
        lines.extend(clip_line(_row(cell, head, sizes, band, has_tail=has_tail), width) for cell in cells)
    return lines


def unfolded_places(cells: list[SequenceCells], length: int, width: int) -> list[Place]:
    """Where `unfolded_lines` draws its tokens, row after row, so that the next one is the row's next."""
    head, sizes = max(cell.head_width for cell in cells), _sizes(cells, length)
    places = []
    bands = _bands(cells, head, sizes, width)
    for number, cell in enumerate(cells):
        for y, band in enumerate(bands):
            x = head + 1
            for column in band:
                token = column - cell.segment.q_start
                if 0 <= token < len(cell.tokens) and x + sizes[column] <= width:
                    line = y * (len(cells) + 1) + number
                    places.append(Place(line, x, min(sizes[column], cell.widths[token]), number, token))
                x += sizes[column] + 1
    return places


def _sizes(cells: list[SequenceCells], length: int) -> list[int]:
    """Cells of every column."""
    return [min(_COLUMN_LIMIT, max(_size(cell, column) for cell in cells)) for column in range(length)]


def _bands(cells: list[SequenceCells], head: int, sizes: list[int], width: int) -> list[range]:
    """The columns of each band; the last one leaves room for what came of the rows."""
    tail = max(cell.tail_width for cell in cells)
    bands: list[range] = []
    first, used = 0, head
    for column, size in enumerate(sizes):
        is_last = column == len(sizes) - 1
        if column > first and used + 1 + size + (1 + tail) * is_last > width:
            bands.append(range(first, column))
            first, used = column, head
        used += 1 + size
    return [*bands, range(first, len(sizes))]


def _size(cell: SequenceCells, column: int) -> int:
    place = column - cell.segment.q_start
    return cell.widths[place] if 0 <= place < len(cell.widths) else 1


def _shown(sizes: list[int], room: int) -> list[int | None]:
    """The columns drawn, None where some are left out: from both ends inwards, the last one always."""
    length = len(sizes)
    if sum(sizes) + length - 1 <= room:
        return list(range(length))
    room -= len(f"⟨+{length}⟩") + sizes[-1] + 1
    first, last = 0, length - 1
    while first < last - 1:
        # Left padding puts most of what differs at the end, so the end gets two columns for one.
        from_end = first * 2 >= length - 1 - last
        size = sizes[last - 1] if from_end else sizes[first]
        room -= size + 1
        if room < 0:
            break
        if from_end:
            last -= 1
        else:
            first += 1
    return [*range(first), None, *range(last, length)]


def _row(
    cell: SequenceCells, head: int, sizes: list[int], shown: Sequence[int | None], *, has_tail: bool = True
) -> Line:
    pieces: list[Piece] = [cell.head, (" " * (head - cell.head_width + 1), "")]
    for number, column in enumerate(shown):
        if number:
            pieces.append(("│", "faint"))
        if column is None:
            pieces.append(_left_out(cell, shown, number, len(sizes)))
            continue
        token = clip_line(_token(cell, column), sizes[column])
        pieces.extend(token)
        pieces.append((" " * (sizes[column] - line_width(token)), ""))
    if has_tail:
        pieces.extend([(" ", ""), *cell.tail])
    return merged(pieces)


def _token(cell: SequenceCells, column: int) -> Line:
    place = column - cell.segment.q_start
    return cell.tokens[place] if 0 <= place < len(cell.tokens) else _PADDING


def _left_out(cell: SequenceCells, shown: Sequence[int | None], number: int, length: int) -> Piece:
    start = number
    after = shown[number + 1]
    stop = length if after is None else after
    mark = f"⟨+{stop - start:,}⟩"
    if cell.segment.q_start >= stop:
        return f"╳×{stop - start:,}".ljust(len(mark)), "padding"
    return mark, "dim"
