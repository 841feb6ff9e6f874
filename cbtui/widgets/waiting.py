"""The waiting queue: who waits, since when, and why, in words. `waiting_rows`,
`reason` and `waiting_lines` are pure."""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece, fit
from cbtui.looks.tokens import cell_width, clip, prose
from cbtui.telling.naming import letter_of
from cbtui.telling.waiting import MOMENTARY, WORDS, why
from cbtui.telling.words import EMPTY, chip, count
from cbtui.widgets.request_list import RequestList
from engine.stream.records import WaitingRecord


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """One line of the queue, in words."""

    request_id: str
    badge: Piece
    prompt: str
    max_tokens: int
    reason: str
    is_preempted: bool = False


def waiting_rows(frame: Frame, at_most: int) -> tuple[list[WaitingRow], int]:
    """The first waiting requests, and how many there are in all.

    While live, prompts that have no token ids yet stand behind them: they have no colour before they
    have arrived, only their letter.
    """
    if frame.is_live or frame.record is None:
        waiting, arriving = frame.state.waiting, frame.state.arriving
        total = frame.state.waiting_count + frame.state.arriving_count
    else:
        waiting, arriving = frame.record.waiting, ()
        total = frame.record.waiting_count
    known = [one for one in waiting[:at_most] if one.request_id in frame.badges]
    rows = [
        WaitingRow(
            one.request_id,
            chip(frame.badges[one.request_id]),
            frame.ledger[one.request_id].request.prompt_text,
            frame.ledger[one.request_id].request.max_tokens,
            reason(frame, one),
            one.preempted,
        )
        for one in known
    ]
    rows += [
        WaitingRow(
            one.request_id,
            (f" {letter_of(one.index)} ", "chip"),
            one.prompt_text,
            one.max_tokens,
            WORDS.get(one.reason, one.reason),
        )
        for one in arriving[: max(0, at_most - len(rows))]
    ]
    return rows, total


def reason(frame: Frame, waiting: WaitingRecord) -> str:
    """Why a request waits and for how many steps, in words."""
    words = why(frame.badges, waiting)
    steps = steps_waited(frame, waiting.request_id)
    if steps and waiting.reason not in MOMENTARY:
        words += f" · {count(steps, 'step')}"
    return words


def steps_waited(frame: Frame, request_id: str) -> int:
    """Steps that went by since the request arrived."""
    step = frame.record.step if frame.record else frame.state.step
    return max(0, step - frame.ledger[request_id].submitted_step)


def waiting_line(frame: Frame, row: WaitingRow, columns: tuple[int, int, int], cells: int) -> Line:
    """One waiting request on one line: badge, prompt, tokens it may make, reason.

    `columns`: cells of the badge, of the maximum and of the reason.
    """
    badge, most, why = columns
    is_selected = row.request_id == frame.selected
    head: Line = (
        ("▸" if is_selected else " ", "cursor" if is_selected else ""),
        row.badge,
        (" " * (badge - len(row.badge[0]) + 1), ""),
    )
    style = "warn" if row.is_preempted else ""
    prompt = cells - 1 - badge - 1 - 2 - most - 2 - why
    if prompt < 8:
        return (*head, (clip(row.reason, cells - 2 - badge), style))
    return (
        *head,
        (fit(prose(row.prompt), prompt) + "  ", ""),
        (f"max {row.max_tokens:,}".rjust(most) + "  ", "dim"),
        (clip(row.reason, why), style),
    )


def waiting_lines(frame: Frame, rows: list[WaitingRow], total: int, cells: int) -> list[Line]:
    """The queue's rows, and a last line that counts those not among them."""
    if not total:
        return [((" " + EMPTY["waiting"], "dim"),)]
    columns = (
        max((len(row.badge[0]) for row in rows), default=3),
        max((len(f"max {row.max_tokens:,}") for row in rows), default=0),
        min(max((cell_width(row.reason) for row in rows), default=0), max(28, cells // 2)),
    )
    lines = [waiting_line(frame, row, columns, cells) for row in rows]
    if total > len(rows):
        lines.append(((f" … and {total - len(rows):,} more", "dim"),))
    return lines


class Waiting(RequestList):
    """The panel of waiting requests. Never scrolls: the head of the queue is what matters."""

    def _show(self, frame: Frame) -> None:
        height = max(1, self.num_visible)
        rows, total = waiting_rows(frame, height)
        if total > len(rows) or len(rows) > height:
            rows = rows[: max(1, height - 1)]
        lines = waiting_lines(frame, rows, total, self.line_width)

        def make(y: int, cells: int) -> Line:
            return lines[y] if y < len(lines) else ()

        self.draw_requests([row.request_id for row in rows], len(lines), make, frame)
        self.title(f"Waiting {total:,}")
