"""How figures and names are written, the same in every panel. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbtui.looks.pieces import Line, Piece
from cbtui.telling.naming import Badge, Badges
from engine.live.commands import PromptRequest
from engine.stream.records import END_NOT_TOLD, STOP_OR_ABORT

#: One dim sentence a panel shows while it has nothing else, by the panel's name.
EMPTY = {
    "slots": "A slot runs one request at a time: who, how far, its text",
    "waiting": "Nobody waits; a prompt without a slot queues here",
    "finished": "Newest first: how each ended, and its text",
    "counters": "Speed, waiting times, wasted work",
    "happened": "What each step did, and why",
}

#: How a request ended, by its reason, where that is no plain end.
ENDS = {
    "abort": "cancelled",
    "error": "failed",
    "ignored": "refused",
    STOP_OR_ABORT: "stop string or cancelled",
    END_NOT_TOLD: "reason not told",
}


def ended(reason: str) -> str:
    """That a request ended, by its reason: `finished (stop)`, `cancelled`, `ended, reason not told`."""
    if reason == END_NOT_TOLD:
        return f"ended, {ENDS[reason]}"
    words = ENDS.get(reason, "")
    # What is long stands behind a word that is kept where there is little room.
    return words if words and " " not in words else f"finished ({words or reason})"


def seconds(value: float | None) -> str:
    """A duration: `55 ms`, `1.9 s`, `151 s`, `3 min`; `–` where there is none."""
    if value is None:
        return "–"
    if value < 0.0995:
        return f"{value * 1000:.1f} ms" if value < 0.00995 else f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def rate(value: float | None) -> str:
    """A rate: `54.2`, `1,631`; `–` where there is none."""
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A share in whole per cent; `<1 %` and `>99 %` keep almost nothing and almost all apart from both."""
    if 0 < share < 0.005:
        return "<1 %"
    if 0.995 <= share < 1:
        return ">99 %"
    return f"{share * 100:.0f} %"


def count(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun: `1 step`, `1,440 steps`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def ranges(numbers: Iterable[int], at_most: int | None = None) -> str:
    """`0–4, 9, 12–13`: numbers in their order, runs joined; more than `at_most` runs end in `…`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = [f"{first}" if first == last else f"{first}–{last}" for first, last in runs[:at_most]]
    return ", ".join([*said, *["…"] * (len(said) < len(runs))])


def size(done: int, total: int, unit: str) -> str:
    """Progress as `41/93 MB`; bytes are written in MB, a total of 0 is not known."""
    if unit in ("B", "bytes"):
        done, total, unit = round(done / 1e6), round(total / 1e6), "MB"
    text = f"{done:,}/{total:,}" if total else f"{done:,}"
    return f"{text} {unit}".strip()


def sampling_words(asked: PromptRequest) -> str:
    """How tokens are chosen, for a chip: `greedy`, or what is not left at its default."""
    if asked.temperature == 0:
        return "greedy"
    parts = [f"T {asked.temperature:g}"]
    parts += [f"top-k {asked.top_k}"] if asked.top_k else []
    parts += [f"top-p {asked.top_p:g}"] if asked.top_p < 1 else []
    return " ".join(parts)


def chip(badge: Badge) -> Piece:
    """A badge in a column."""
    return f" {badge.letter} ", f"badge:{badge.colour}"


def mention(badge: Badge) -> Piece:
    """A badge in a sentence: no space around, so that commas follow as in any text."""
    return badge.letter, f"badge:{badge.colour}"


def badge_cell(badge: Badge, cells: int) -> Line:
    """A badge at the head of a line, filled to `cells` cells with nothing."""
    text, style = chip(badge)
    gap = cells - len(text)
    return ((text, style), (" " * gap, "")) if gap > 0 else ((text, style),)


def badge_cells(badges: Badges, request_ids: Sequence[str]) -> int:
    """Cells a column of these requests' badges takes."""
    return 2 + max((len(badges[r].letter) for r in request_ids if r in badges), default=1)


def listed(parts: Sequence[Line]) -> Line:
    """Names in a sentence: `A`, `A and B`, `A, B and C`."""
    pieces: list[Piece] = []
    for number, part in enumerate(parts):
        if number:
            pieces.append((" and " if number == len(parts) - 1 else ", ", ""))
        pieces.extend(part)
    return tuple(pieces)


def names(badges: Badges, request_ids: Sequence[str], at_most: int = 8) -> Line:
    """Requests named in a sentence; more than `at_most` are counted."""
    parts: list[Line] = [(mention(badges[r]),) for r in request_ids[:at_most]]
    if len(request_ids) > at_most:
        parts.append(((f"{len(request_ids) - at_most:,} more", ""),))
    return listed(parts)
