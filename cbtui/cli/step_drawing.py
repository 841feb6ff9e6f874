"""One step as the tutorial draws it: the row by sequence, and the mask as `#` and `.`.

    total_q 12, total_kv 34 (22 cached)
          DDDDDDDDDDbbbbbbbbbbBccccccccccccC    owner of each key, small letters: cached
    D p0  #.................................

Pure. What is too wide is folded where nothing is hidden: keys that every drawn query sees alike become
one labelled stretch, and a long prompt keeps its first and last rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from cbtui.cli.console import Look, colour_of
from cbtui.looks.tokens import cell_width
from cbtui.telling.naming import letter_of
from engine.step.mask import LayerKind, QueryRun, query_runs
from engine.stream.drafts import Fate
from engine.stream.ledger import Ledger
from engine.stream.records import Record, Segment, StepRecord

#: A longer prefill keeps this many rows at each end.
ROWS_KEPT = 4
#: Sequences of one step drawn; the rest are counted.
SEQUENCES_SHOWN = 16
#: Before a draft's text: it was right, or it came to nothing.
_DRAFT_SIGNS: dict[Fate | None, str] = {None: "", "accepted": "+", "unused": "-", "rejected": "-"}


def telling_steps(records: Sequence[Record]) -> list[StepRecord]:
    """The first step (prompts only), and the first that feeds prompts beside decodes."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    mixed = next((s for s in steps if {"prefill", "decode"} <= {x.kind for x in s.segments}), None)
    return [*steps[:1], *([mixed] if mixed is not None and mixed is not steps[0] else [])]


def step_heading(record: StepRecord) -> str:
    """The step in figures."""
    cached = sum(segment.num_cached for segment in record.segments)
    if record.layout == "padded":
        rows, columns = record.shape
        return (
            f"Step {record.step}: rectangle [{rows}, {columns}] = {rows * columns} positions, "
            f"{record.tokens.padding} of them padding; {cached} keys cached"
        )
    new = record.shape[1]
    return f"Step {record.step}: total_q {new}, total_kv {record.num_keys} ({cached} cached + {new} new)"


def draw_row(record: StepRecord, ledger: Ledger, look: Look) -> list[Text]:
    """The step's tokens, a line a sequence, with what was sampled after the last of each."""
    lines = []
    for segment in record.segments[:SEQUENCES_SHOWN]:
        index = ledger[segment.request_id].index
        line = Text("  ").append(f"{letter_of(index):<3}", _ink(index, look))
        line.append(f"{_phase(segment):<13}")
        outputs = segment.outputs
        sampled = f" -> {look.quoted(ledger.decode(outputs), 24)}" if outputs else ""
        padding = record.shape[1] - segment.q_len if record.layout == "padded" else 0
        tokens = [
            _DRAFT_SIGNS[segment.fate(n)] + _token(ledger, token, look)
            for n, token in enumerate(segment.token_ids)
        ]
        line.append(_padding(padding), "dim")
        line.append(_joined(tokens, look.width - line.cell_len - len(sampled), look)).append(sampled, "bold")
        lines.append(line)
    if len(record.segments) > SEQUENCES_SHOWN:
        more = len(record.segments) - SEQUENCES_SHOWN
        lines.append(Text(f"  {look.ellipsis} and {more} more sequences", style="dim"))
    if any(segment.drafts for segment in record.segments):
        lines.append(Text("  + a draft that was accepted, - one that came to nothing", style="dim"))
    return lines


def draw_mask(record: StepRecord, ledger: Ledger, look: Look, window: int | None = None) -> list[Text]:
    """The step's mask, a grid for each row of its tensor. Queries down, keys across.

    `window`: keys a query sees in the drawn layers; None: all before it.
    """
    grids: list[Text] = []
    for row in range(min(record.shape[0], SEQUENCES_SHOWN)):
        segments = [s for s in record.segments if s.row == row][:SEQUENCES_SHOWN]
        if grids:
            grids.append(Text())
        grids.extend(_grid(record, segments, row, ledger, look, window))
    return grids


def masks_of(record: StepRecord, kinds: Sequence[LayerKind]) -> list[int]:
    """The kinds of layers, by number, whose masks differ in this step: one of each, at least the first."""
    seen: list[list[QueryRun]] = []
    found = []
    for number, kind in enumerate(kinds):
        runs = list(query_runs(record.segments, record.shape, kind.window))
        if runs not in seen:
            seen.append(runs)
            found.append(number)
    return found


def mask_legend(record: StepRecord) -> Text:
    """How to read `draw_mask`."""
    padding = ", - padding" if record.layout == "padded" else ""
    text = f"columns: keys by owner, small letter cached{padding}; # may attend, . may not"
    return Text(text, style="dim")


def _phase(segment: Segment) -> str:
    if segment.kind == "prefill":
        return f"PREFILL({segment.q_len})"
    return f"{segment.kind}({segment.q_len})"


def _ink(index: int, look: Look) -> str:
    return "" if look.is_plain else f"bold {colour_of(index)}"


def _token(ledger: Ledger, token_id: int, look: Look) -> str:
    return look.quoted(ledger.decode([token_id]), 40)[1:-1]


def _padding(count: int) -> str:
    """A row's padding positions before its tokens."""
    return ("_" * count if count <= 8 else f"_x{count}") + " " * bool(count)


def _joined(tokens: Sequence[str], room: int, look: Look) -> str:
    """Tokens between bars; of too many the first and last are kept."""
    text = "|".join(tokens)
    if cell_width(text) <= room:
        return text
    for kept in range(len(tokens) - 1, 1, -1):
        head, tail = tokens[: kept - kept // 3], tokens[len(tokens) - kept // 3 :]
        text = "|".join([*head, f"(+{len(tokens) - kept})", *tail])
        if cell_width(text) <= room:
            return text
    return look.clip(text, room)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Neighbouring keys of one owner that every drawn query sees alike."""

    owner: int | None
    is_cached: bool
    seen: tuple[bool, ...]
    length: int


def _grid(
    record: StepRecord,
    segments: Sequence[Segment],
    row: int,
    ledger: Ledger,
    look: Look,
    window: int | None,
) -> list[Text]:
    runs = [run for run in query_runs(record.segments, record.shape, window) if run.row == row]
    wanted = {record.segments.index(segment) for segment in segments} | {None}
    rows = _kept([run for run in runs if run.segment in wanted])
    queries = [run for run in rows if isinstance(run, QueryRun)]
    labels = [_label(run, record, ledger) for run in queries]
    indent = max(map(len, labels)) + 4
    stretches = _stretches(record, segments, queries, ledger)
    room = look.width - indent
    is_wide = sum(stretch.length for stretch in stretches) > room
    fold = _folded_cells if is_wide else _all_cells
    head = Text(" " * indent)
    for stretch in stretches:
        cells = fold(stretch)
        head.append(
            _owner_cells(stretch, cells), "dim" if stretch.owner is None else _ink(stretch.owner, look)
        )
    lines = [_clipped(head, look)]
    place = 0
    for run in rows:
        if not isinstance(run, QueryRun):
            lines.append(Text(f"  {'⋮' if not look.is_plain else ':'} {run} rows like these", style="dim"))
            continue
        line = Text(f"  {labels[place]:<{indent - 2}}")
        for stretch in stretches:
            is_seen = stretch.seen[place]
            style = (_ink(stretch.owner, look) if stretch.owner is not None else "") if is_seen else "dim"
            line.append(("#" if is_seen else ".") * fold(stretch), style)
        lines.append(_clipped(line, look))
        place += 1
    return lines


def _clipped(line: Text, look: Look) -> Text:
    line.truncate(look.width, overflow="crop")
    line.rstrip()
    return line


def _kept(runs: Sequence[QueryRun]) -> list[QueryRun | int]:
    """The queries to draw; a number stands for so many left out of a long prompt's middle."""
    kept: list[QueryRun | int] = []
    for _, group in groupby(runs, key=lambda run: run.segment):
        rows = list(group)
        if rows[0].segment is None and len(rows) > 2:
            kept += [rows[0], len(rows) - 1]
        elif len(rows) > 3 * ROWS_KEPT:
            kept += [*rows[:ROWS_KEPT], len(rows) - 2 * ROWS_KEPT, *rows[-ROWS_KEPT:]]
        else:
            kept += rows
    return kept


def _label(run: QueryRun, record: StepRecord, ledger: Ledger) -> str:
    if run.segment is None:
        return "padding"
    segment = record.segments[run.segment]
    position = segment.position + run.column - segment.q_start
    return f"{letter_of(ledger[segment.request_id].index)} p{position}"


def _stretches(
    record: StepRecord, segments: Sequence[Segment], queries: Sequence[QueryRun], ledger: Ledger
) -> list[_Stretch]:
    owners: list[tuple[int | None, bool]] = [(None, False)] * record.num_keys
    for segment in segments:
        index = ledger[segment.request_id].index
        for key in range(segment.kv_len):
            owners[segment.kv_start + key] = (index, key < segment.num_cached)
    shown = max((s.kv_start + s.kv_len for s in segments), default=0)

    def column(key: int) -> tuple[int | None, bool, tuple[bool, ...]]:
        return (*owners[key], tuple(run.start <= key < run.stop for run in queries))

    return [
        _Stretch(owner, is_cached, seen, sum(1 for _ in group))
        for (owner, is_cached, seen), group in groupby(range(shown), key=column)
    ]


def _owner_cells(stretch: _Stretch, cells: int) -> str:
    letter = "-" if stretch.owner is None else letter_of(stretch.owner)[0]
    letter = letter.lower() if stretch.is_cached else letter
    if cells == stretch.length:
        return letter * cells
    return f"{letter}x{stretch.length}".center(cells, letter)


def _all_cells(stretch: _Stretch) -> int:
    return stretch.length


def _folded_cells(stretch: _Stretch) -> int:
    """Cells a folded stretch takes: its label, a letter on either side."""
    return min(stretch.length, len(f"x{stretch.length}") + 3)
