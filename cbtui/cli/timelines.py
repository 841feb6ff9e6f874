"""Who was in which slot, step by step, for several runs on one scale.

static: 480 steps
 0 AxxxxxxxD==xxxxx       a letter: its prompt goes in     = decode
 1 B=xxxxxxE=======       x dead: ended, its slot held     . idle
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from rich.text import Text

from cbtui.cli.console import Look, colour_of
from cbtui.telling.naming import letter_of
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord

SLOTS_SHOWN = 16
PLAIN = {"decode": "=", "dead": "x", "idle": "."}
DRAWN = {"decode": "▄", "dead": "░", "idle": "·"}


@dataclass(frozen=True, slots=True)
class Column:
    """Some steps of one slot: what it mostly did, for whom, and whose prompt went in (None: nobody's)."""

    state: str
    index: int | None
    prefilled: int | None


def steps_a_column(num_steps: int, columns: int) -> int:
    """The smallest power of two that brings so many steps into so many columns."""
    scale = 1
    while -(-num_steps // scale) > columns:
        scale *= 2
    return scale


def slot_columns(records: Sequence[Record], ledger: Ledger, slot: int, scale: int) -> list[Column]:
    """A slot's columns of `scale` steps each.

    Where two prompts share a column the second is shown in the next one, if that is free: every request
    is seen.
    """
    columns: list[Column] = []
    late: int | None = None
    steps = [record for record in records if isinstance(record, StepRecord)]
    for start in range(0, len(steps), scale):
        seen: Counter[tuple[str, int | None]] = Counter()
        entered: list[int] = [] if late is None else [late]
        for record in steps[start : start + scale]:
            segment = next((s for s in record.segments if s.slot == slot), None)
            if segment is None:
                seen["idle", None] += 1
                continue
            who = ledger[segment.request_id].index
            seen["dead" if segment.kind == "dead" else "decode", who] += 1
            if segment.kind == "prefill" and who not in entered:
                entered.append(who)
        (state, index), _ = seen.most_common(1)[0]
        late = entered[1] if len(entered) > 1 else None
        columns.append(Column(state, index, entered[0] if entered else None))
    return columns


def timeline(records: Sequence[Record], ledger: Ledger, scale: int, look: Look) -> list[Text]:
    """One run's slots, a line each."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    num_slots = max((step.max_num_seqs for step in steps), default=0)
    used = 1 + max((segment.slot for step in steps for segment in step.segments), default=0)
    lines = []
    for slot in range(min(num_slots, max(used, 1), SLOTS_SHOWN)):
        drawn = [_drawn(column, look) for column in slot_columns(records, ledger, slot, scale)]
        line = Text.assemble((f"{slot:>3} ", "dim"))
        for style, run in groupby(drawn, key=itemgetter(1)):
            line.append("".join(sign for sign, _ in run), style)
        lines.append(line)
    if num_slots > len(lines):
        lines.append(Text(f"    and {num_slots - len(lines)} more slots", style="dim"))
    return lines


def legend(look: Look) -> Text:
    """What the characters of `timeline` mean."""
    signs = PLAIN if look.is_plain else DRAWN
    letter = Text("letter") if look.is_plain else Text("letter", style="reverse")
    return Text.assemble(
        letter,
        f" its prompt goes in   {signs['decode']} decode   {signs['dead']} dead (ended, slot held)"
        f"   {signs['idle']} idle",
    )


def _drawn(column: Column, look: Look) -> tuple[str, str]:
    """A column's character and style."""
    if column.prefilled is not None:
        style = "" if look.is_plain else f"bold #000000 on {colour_of(column.prefilled)}"
        return letter_of(column.prefilled)[0], style
    sign = (PLAIN if look.is_plain else DRAWN)[column.state]
    if column.index is None or look.is_plain:
        return sign, "dim" if column.state == "idle" else ""
    return sign, f"dim {colour_of(column.index)}" if column.state == "dead" else colour_of(column.index)
