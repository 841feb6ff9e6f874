"""Draws what exactly goes through the model in a step. Pure: a record in, lines out.

Up to `FEW` tokens each sequence has a line of its own. More tokens stand in one wrapped row of segments with
their positions below; a segment that does not fit keeps its first tokens and its last, sampled one, with
`⟨+488⟩` between. A padded step is drawn as the rectangle it is (`rectangle.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cbtui.drawing.mask import seen_keys
from cbtui.drawing.rectangle import rectangle_lines, rectangle_places, unfolded_lines, unfolded_places
from cbtui.drawing.row_cursor import Place
from cbtui.drawing.token_cells import SequenceCells, TokenBytes, alternatives, sequence_cells
from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece, clip_line, line_width
from cbtui.telling.naming import Badges
from cbtui.telling.provenance import at_least, is_uncounted
from cbtui.telling.words import count
from engine.step.mask import LayerKind
from engine.stream.records import Segment, StepRecord

#: Tokens up to which every sequence has its own line.
FEW = 8
#: Of a step whose requests are not known: an observed server that only counts, or records that were dropped
#: before they were read.
UNSEEN = "Its tokens are counted; whose they are is not known"
#: Of a step that was counted and no more.
UNCOUNTED = "How many tokens were in it, and whose, is not told"
#: Columns between segments of a wrapped row, and between sequences in columns.
_GAP = 2
#: Least columns for a sequence when several stand side by side.
_LEAST = 26


def title(record: StepRecord) -> str:
    """The panel's title: the tensor's shape and what is cached beside it."""
    rows, columns = record.shape
    name = "Rectangle" if record.layout == "padded" else "Packed row"
    cached = sum(segment.num_cached for segment in record.segments)
    known = sum(segment.q_len for segment in record.segments)
    if record.layout == "ragged" and known and (record.tokens.total > known or is_uncounted(record)):
        name, columns = f"{name}, {count(known, 'token')} known of", record.tokens.total
    wide = "?" if is_uncounted(record) else columns
    return f"{name} [{rows}, {wide}]" + (f" · {cached:,} cached" if cached else "")


def summary(record: StepRecord, width: int) -> Line:
    """What the step's positions were spent on, and the same tokens in the other layout."""
    tokens = record.tokens
    made = sum(len(segment.outputs) for segment in record.segments)
    has_drafts = any(segment.drafts for segment in record.segments)
    unit = "position" if record.layout == "padded" else "token"
    plural = "" if tokens.total == 1 and not is_uncounted(record) else "s"
    parts = [f"{at_least(record, tokens.total)} {unit}{plural}", f"{tokens.padding:,} padding"]
    if tokens.dead:
        parts.append(f"{tokens.dead:,} dead")
    if has_drafts:
        parts.append(f"{tokens.rejected:,} rejected")
    parts.append(f"{made} gained" if has_drafts else f"{at_least(record, made)} sampled")
    left: Line = ((" · ".join(parts), ""),)
    right: Line = ((_otherwise(record), "dim"),)
    for gap in (6, 3):
        if line_width(left) + gap + line_width(right) <= width:
            return (*left, (" " * gap, ""), *right)
    return clip_line(left, width)


def _otherwise(record: StepRecord) -> str:
    tokens = record.tokens
    if record.layout == "padded":
        useful = tokens.total - tokens.padding - tokens.dead
        without = "packed, without dead rows, it would be" if tokens.dead else "packed it would be"
        return f"{without} [1, {useful:,}]"
    rows = len(record.segments)
    longest = max((segment.q_len for segment in record.segments), default=0)
    known = sum(segment.q_len for segment in record.segments)
    if not rows or is_uncounted(record) or known < tokens.total - tokens.padding:
        return "the others are other clients', which the server does not name" if rows else ""
    size = rows * longest
    padding = size - tokens.total
    padded = f"{padding:,} of them padding" if padding else "none of them padding"
    return f"as a padded rectangle: {rows} × {longest:,} = {count(size, 'position')}, {padded}"


@dataclass(frozen=True, slots=True)
class RowDrawing:
    """The panel's lines, the summary apart, and where each drawn token stands, in reading order."""

    lines: list[Line]
    places: list[Place]


def packed_row(
    record: StepRecord,
    badges: Badges,
    text: TokenBytes,
    width: int,
    height: int,
    *,
    is_whole: bool = False,
    kinds: Sequence[LayerKind] = (LayerKind(),),
) -> RowDrawing:
    """The step's tokens: at most `height` lines if that is possible, more to scroll if not.

    `is_whole`: nothing is folded, however many lines it takes.
    """
    if not record.segments:
        return RowDrawing([((UNCOUNTED if is_uncounted(record) else UNSEEN, "dim"),)], [])
    cells = [sequence_cells(segment, badges, text) for segment in record.segments]
    if record.layout == "padded" and record.shape[1] > 1:
        length = record.shape[1]
        if is_whole:
            return RowDrawing(unfolded_lines(cells, length, width), unfolded_places(cells, length, width))
        return RowDrawing(rectangle_lines(cells, length, width), rectangle_places(cells, length, width))
    if record.tokens.total <= FEW or record.shape[1] == 1 or _are_few_decodes(record):
        return _a_line_each(cells, text, width, height, kinds)
    if is_whole:
        return _with_positions(_flow([_atoms(cell, None, n) for n, cell in enumerate(cells)], width), width)
    return _wrapped(cells, width, height)


def _are_few_decodes(record: StepRecord) -> bool:
    """Whether there are few sequences and none longer than its drafts make it."""
    return len(record.segments) <= FEW and all(segment.kind == "decode" for segment in record.segments)


# -- few tokens ------------------------------------------------------------------------------------


def _a_line_each(
    cells: list[SequenceCells], text: TokenBytes, width: int, height: int, kinds: Sequence[LayerKind]
) -> RowDrawing:
    """A line a sequence, in as few columns as the height allows."""
    most = max(1, (width + _GAP) // (_LEAST + _GAP))
    columns = min(most, -(-len(cells) // max(1, height)))
    size = (width - _GAP * (columns - 1)) // columns
    height = -(-len(cells) // columns)
    head = max((cell.head_width for cell in cells), default=0)
    row = min(size // 2, max((cell.row_width for cell in cells), default=0))
    lines = [_sequence_line(cell, text, head, row, size, kinds) for cell in cells]
    drawn = []
    for y in range(height):
        pieces: list[Piece] = []
        for number, line in enumerate(lines[y::height]):
            if number:
                pieces.append((" " * (number * (size + _GAP) - line_width(tuple(pieces))), ""))
            pieces.extend(line)
        drawn.append(merged(pieces))
    return RowDrawing(drawn, list(_places_in_columns(cells, head, size, height)))


def _places_in_columns(cells: list[SequenceCells], head: int, size: int, height: int) -> Iterator[Place]:
    """Where the tokens of sequences with a line each stand; clipped ones are left out."""
    for number, cell in enumerate(cells):
        left = number // height * (size + _GAP)
        column = head + 1
        for token, cells_wide in enumerate(cell.widths):
            if column + cells_wide <= size:
                yield Place(number % height, left + column, cells_wide, number, token)
            column += cells_wide + 1


def _sequence_line(
    cell: SequenceCells, text: TokenBytes, head: int, row: int, width: int, kinds: Sequence[LayerKind]
) -> Line:
    pieces: list[Piece] = [cell.head, (" " * (head - cell.head_width + 1), "")]
    pieces.extend(_joined_tokens(cell.tokens))
    pieces.append((" " * (row - cell.row_width + 1), ""))
    pieces.extend(cell.tail)
    segment = cell.segment
    if segment.kind != "dead":
        keys = f", looks at {_seen_words(segment, kinds)}"
        if line_width(tuple(pieces)) + len(keys) <= width:
            pieces.append((keys, "dim"))
    more = alternatives(segment, text)
    if more and line_width(tuple(pieces)) + 3 + line_width(more) <= width:
        pieces.extend([("   ", ""), *more])
    return clip_line(merged(pieces), width)


def _seen_words(segment: Segment, kinds: Sequence[LayerKind]) -> str:
    """How many keys the sequence's last query sees, in layers with a window too."""
    numbers = [seen_keys(segment, kind.window) for kind in kinds]
    most, least = max(numbers), min(numbers)
    keys = count(most, "key")
    standing = segment.num_cached + segment.num_kept
    if most < standing:
        keys = f"{most:,} of {standing:,} keys"
    return keys if least == most else f"{keys}, {least:,} in a window"


def _joined_tokens(tokens: tuple[Line, ...]) -> list[Piece]:
    pieces: list[Piece] = []
    for number, token in enumerate(tokens):
        if number:
            pieces.append(("│", "faint"))
        pieces.extend(token)
    return pieces


# -- a wrapped row ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Atom:
    """What never breaks across lines, and where in it a token with a position begins."""

    pieces: list[Piece]
    width: int
    position: int | None = None
    offset: int = 0
    is_last: bool = False
    token: tuple[int, int, int] | None = None  # segment, token, width


@dataclass(slots=True)
class _RowLine:
    pieces: list[Piece] = field(default_factory=list)
    used: int = 0
    positions: list[tuple[int, int, bool]] = field(default_factory=list)  # column, position, is last
    tokens: list[tuple[int, int, int, int]] = field(default_factory=list)  # column, width, segment, token


def _wrapped(cells: list[SequenceCells], width: int, height: int) -> RowDrawing:
    """The row, whole if it fits: with positions if there is room for them; else folded to fit."""
    with_positions = max(1, height // 2) if height >= 2 else 0
    may_fit = sum(cell.whole_width for cell in cells) <= width * height
    lines = _flow([_atoms(cell, None, n) for n, cell in enumerate(cells)], width) if may_fit else []
    if may_fit and len(lines) <= with_positions:
        return _with_positions(lines, width)
    if not may_fit or len(lines) > height:
        lines = _folded_to(cells, width, with_positions or height)
        if with_positions:
            return _with_positions(lines, width)
    drawn = [clip_line(merged(line.pieces), width) for line in lines]
    return RowDrawing(drawn, [place for y, line in enumerate(lines) for place in _places(line, y, width)])


def _places(line: _RowLine, y: int, width: int) -> Iterator[Place]:
    for column, size, segment, token in line.tokens:
        if column + size <= width:
            yield Place(y, column, size, segment, token)


def _folded_to(cells: list[SequenceCells], width: int, room: int) -> list[_RowLine]:
    """The row with its longest segments folded just so far that it fits `room` lines."""
    low = 0
    high = max(cell.whole_width for cell in cells)
    lines = _flow([_atoms(cell, 0, n) for n, cell in enumerate(cells)], width)
    if len(lines) > room or all(len(cell.tokens) <= 3 for cell in cells):
        return lines
    high = min(high, width * room)
    while high - low > 1:
        middle = (low + high) // 2
        tried = _flow([_atoms(cell, _kept(cell, middle), n) for n, cell in enumerate(cells)], width)
        if len(tried) <= room:
            low, lines = middle, tried
        else:
            high = middle
    return lines


def _kept(cell: SequenceCells, budget: int) -> int | None:
    """First tokens kept of a segment in `budget` columns; None: all of it fits."""
    fixed = cell.head_width + cell.tail_width + 2
    if cell.whole_width <= budget:
        return None
    room = budget - fixed - cell.widths[-1] - len(f"⟨+{len(cell.tokens)}⟩") - 1
    kept = 0
    for size in cell.widths[:-2]:
        room -= size + 1
        if room < 0:
            break
        kept += 1
    return kept


def _atoms(cell: SequenceCells, kept: int | None, segment: int) -> list[_Atom]:
    """A segment as unbreakable parts: head and first token together, last token and tail together."""
    count = len(cell.tokens)
    first = count if kept is None or count <= 2 else max(1, min(kept, count - 2))
    numbers: list[int | None] = list(range(first))
    if first < count:
        numbers += [None, count - 1]
    atoms = []
    for place, number in enumerate(numbers):
        atom = _Atom([], 0)
        if place == 0:
            atom.pieces += [cell.head, (" ", "")]
            atom.width = atom.offset = cell.head_width + 1
        if number is None:
            mark = f"⟨+{count - first - 1:,}⟩"
            atom.pieces.append((mark, "dim"))
            atom.width += len(mark)
        else:
            atom.pieces += cell.tokens[number]
            atom.token = (segment, number, cell.widths[number])
            atom.width += cell.widths[number]
            # A decode's position stands in its badge.
            if cell.segment.kind == "prefill":
                atom.position = cell.segment.position + number
        if place == len(numbers) - 1:
            atom.pieces += [(" ", ""), *cell.tail]
            atom.width += 1 + cell.tail_width
            atom.is_last = True
        else:
            atom.pieces.append(("│", "faint"))
            atom.width += 1
        atoms.append(atom)
    return atoms


def _flow(segments: list[list[_Atom]], width: int) -> list[_RowLine]:
    lines = [_RowLine()]
    for atoms in segments:
        gap = _GAP
        for atom in atoms:
            line = lines[-1]
            if line.used and line.used + gap + atom.width > width:
                line = _RowLine()
                lines.append(line)
            if line.used and gap:
                line.pieces.append((" " * gap, ""))
                line.used += gap
            if atom.position is not None:
                line.positions.append((line.used + atom.offset, atom.position, atom.is_last))
            if atom.token is not None:
                owner, token, size = atom.token
                line.tokens.append((line.used + atom.offset, size, owner, token))
            line.pieces += atom.pieces
            line.used += atom.width
            gap = 0
    return lines


def _with_positions(lines: list[_RowLine], width: int) -> RowDrawing:
    drawn: list[Line] = []
    places: list[Place] = []
    for line in lines:
        places.extend(_places(line, len(drawn), width))
        drawn.append(clip_line(merged(line.pieces), width))
        positions = _positions(line.positions, width)
        if positions:
            drawn.append(positions)
    return RowDrawing(drawn, places)


def _positions(places: list[tuple[int, int, bool]], width: int) -> Line:
    """Numbers under the columns their tokens start in; one without room is left out, never a last one."""
    text = ""
    for number, (column, position, is_last) in enumerate(places):
        digits = str(position)
        end = column + len(digits)
        following = places[number + 1] if number + 1 < len(places) else None
        hides_last = following is not None and following[2] and end >= following[0] and not is_last
        if end <= width and not hides_last and (column > len(text) or column == 0):
            text += " " * (column - len(text)) + digits
    return ((text, "dim"),) if text else ()
