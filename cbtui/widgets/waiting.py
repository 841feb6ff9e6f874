"""The waiting queue: who waits, since when, and why, in words. `QueueLines`, `reason`
and `waiting_title` are pure."""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece, fit
from cbtui.looks.tokens import cell_width, clip, prose
from cbtui.telling.naming import letter_of
from cbtui.telling.provenance import is_absent, mark
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


def waiting_count(frame: Frame) -> int:
    """Waiting requests in all; while live, prompts that have no token ids yet are among them."""
    if frame.is_live or frame.record is None:
        return frame.state.waiting_count + frame.state.arriving_count
    return frame.record.waiting_count


def waiting_rows(frame: Frame) -> list[WaitingRow]:
    """The first waiting requests: as many as a record names.

    While live, prompts that have no token ids yet stand behind them: they have no colour before they
    have arrived, only their letter.
    """
    if frame.is_live or frame.record is None:
        waiting, arriving = frame.state.waiting, frame.state.arriving
    else:
        waiting, arriving = frame.record.waiting, ()
    rows = [
        WaitingRow(
            one.request_id,
            chip(frame.badges[one.request_id]),
            frame.ledger[one.request_id].request.prompt_text,
            frame.ledger[one.request_id].request.max_tokens,
            reason(frame, one),
            one.preempted,
        )
        for one in waiting
        if one.request_id in frame.badges
    ]
    rows += [
        WaitingRow(
            one.request_id,
            (f" {letter_of(one.index)} ", "chip"),
            one.prompt_text,
            one.max_tokens,
            WORDS.get(one.reason, one.reason),
        )
        for one in arriving
    ]
    return rows


def reason(frame: Frame, waiting: WaitingRecord) -> str:
    """Why a request waits and for how many steps, in words."""
    words = why(frame.badges, waiting, num_held=_num_held(frame), draining=_num_draining(frame))
    steps = steps_waited(frame, waiting.request_id)
    if steps and waiting.reason not in MOMENTARY:
        words += f" · {count(steps, 'step')}"
    return words


def steps_waited(frame: Frame, request_id: str) -> int:
    """Steps that went by since the request arrived, or gave way."""
    step = frame.record.step if frame.record else frame.state.step
    return max(0, step - frame.ledger[request_id].waits_since(step))


def _num_held(frame: Frame) -> int:
    is_now = frame.is_live or frame.record is None
    slots = frame.state.slots if is_now or frame.record is None else frame.record.slots
    return sum(slot.held for slot in slots)


def _num_draining(frame: Frame) -> int:
    return frame.state.draining if frame.is_live or frame.record is None else frame.record.draining


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


class QueueLines:
    """The queue in lines of `cells` cells: those a record names, and one that counts the rest.

    Args:
        in_view: the lines whose texts decide how wide the columns are.
    """

    def __init__(self, frame: Frame, cells: int, in_view: slice = slice(None)) -> None:
        self._frame, self._cells = frame, cells
        self.rows = waiting_rows(frame)
        self.total = waiting_count(frame)
        rows = self.rows[in_view]
        self._columns = (
            max((len(row.badge[0]) for row in rows), default=3),
            max((len(f"max {row.max_tokens:,}") for row in rows), default=0),
            min(max((cell_width(row.reason) for row in rows), default=0), max(28, cells // 2)),
        )

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.rows) + (self.total > len(self.rows)) if self.rows else 1

    def line(self, y: int) -> Line:
        """Line `y`, from the head of the queue."""
        if y < len(self.rows):
            return waiting_line(self._frame, self.rows[y], self._columns, self._cells)
        if self.rows:
            more = f" … and {self.total - len(self.rows):,} more"
            is_named = not is_absent(self._frame.state.provenance, "waiting_requests")
            return ((more + (" behind them" if is_named else ", which the server does not name"), "dim"),)
        if self.total:
            who = "request waits" if self.total == 1 else "requests wait"
            return ((f" {self.total:,} {who}; the server does not say which", "dim"),)
        return ((" " + EMPTY["waiting"], "dim"),)


def waiting_title(total: int, first: int, num_visible: int) -> str:
    """`Waiting 3`, or which of them are in view."""
    if not 0 < num_visible < total:
        return f"Waiting {total:,}"
    return f"Waiting {first + 1}–{min(total, first + num_visible)} of {total:,}"


def _remarks(frame: Frame) -> list[str]:
    """What is said of the queue as a whole, beside its length."""
    state, remarks = frame.state, []
    if frame.is_live and state.num_held_here:
        remarks.append(f"{state.num_held_here:,} held back here")
    if frame.is_live and state.is_out_of_sight:
        remarks.append("as last seen")
    if doubt := mark(state.provenance, "waiting"):
        remarks.append(doubt)
    return remarks


class Waiting(RequestList):
    """The panel of waiting requests; scrolls through those that a record names."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._total = 0
        #: Cells of its title line that heads of tabs stand on.
        self.head_cells = 0

    def _show(self, frame: Frame) -> None:
        in_view = slice(self.first_line, self.first_line + max(1, self.num_visible))
        lines = QueueLines(frame, self.line_width, in_view)
        self._total = lines.total
        self.draw_requests(
            [row.request_id for row in lines.rows], lines.count, lambda y, _: lines.line(y), frame
        )
        self.follow()
        self._show_title()

    def _show_title(self) -> None:
        remarks = " · ".join(_remarks(self._frame)) if self._frame else ""
        if self.head_cells:
            # The heads name it; what else there is to say stands behind them.
            self.title(f"{'─' * self.head_cells} {remarks}" if remarks else "")
            return
        title = waiting_title(self._total, self.first_line, self.num_visible)
        self.title(f"{title} · {remarks}" if remarks else title)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other lines, other columns."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value) and self._frame is not None:
            self._show(self._frame)
