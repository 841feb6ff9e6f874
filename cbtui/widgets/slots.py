"""The slots: who runs in each, how far, and the text so far, streaming.

`slot_rows` says what is in each slot, `slot_line` draws one; both are pure. A row of the shown step
counts that step's own progress in; while the view is live, what happened since (a cancel, a slot set
free) shows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from cbtui.following.frame import Frame
from cbtui.looks.bars import bar
from cbtui.looks.pieces import Line, fit, join
from cbtui.looks.tokens import clip
from cbtui.telling.alone import mark, short_words
from cbtui.telling.request_text import newest_text
from cbtui.telling.words import EMPTY, badge_cell, badge_cells, count, ended
from cbtui.widgets.messages import SlotsScrolled
from cbtui.widgets.request_list import RequestList
from engine.stream.records import Segment, SlotRecord

#: From this many cells on, a line has room for long phases and a long bar.
WIDE = 96
_BAR_MAX = 10
#: Of a slot in use that a server names nobody for.
OTHERS = "another client's request, which the server does not name"


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot of a frame.

    `phase` is a word or two; `note` a dim remark before the text; `note_style` its style. `bar` is the
    share of outputs made, None for a dead row.
    """

    slot: int
    request_id: str = ""
    phase: str = "idle"
    is_busy: bool = False
    note: str = ""
    note_style: str = "dim"
    bar: float | None = None
    progress: str = ""
    is_closing: bool = False


def slot_count(frame: Frame) -> int:
    """`max_num_seqs` at the shown step; 0: a server was not seen yet."""
    if frame.is_live or frame.record is None:
        is_unseen = frame.state.is_attached and frame.state.model is None
        return 0 if is_unseen else frame.state.config.max_num_seqs
    return frame.record.max_num_seqs


def num_of_others(frame: Frame) -> int:
    """Slots that a server says are in use at the shown step, beyond those whose requests it names."""
    running = dict(frame.metrics.figures).get("num_requests_running")
    known = frame.state.slots if frame.is_live or frame.record is None else frame.record.slots
    return max(0, int(running or 0) - len(known))


def slot_rows(frame: Frame) -> list[SlotRow]:
    """Every slot in order: idle ones too, and those above the limit that still have to end."""
    record = frame.record
    limit = slot_count(frame)
    shown = {slot.slot: slot for slot in record.slots} if record else {}
    now = {slot.slot: slot for slot in frame.state.slots} if frame.is_live else shown
    segments = {segment.slot: segment for segment in record.segments} if record else {}
    others = num_of_others(frame)
    rows = []
    for number in range(max([limit, *(n + 1 for n in shown), *(n + 1 for n in now)])):
        slot = shown.get(number) or now.get(number)
        if slot is None:
            rows.append(SlotRow(number, phase=OTHERS, is_busy=True) if others > 0 else SlotRow(number))
            others -= 1
            continue
        rows.append(_row(frame, slot, now.get(number), segments.get(number), number >= limit))
    return rows


def _row(
    frame: Frame, slot: SlotRecord, now: SlotRecord | None, segment: Segment | None, is_closing: bool
) -> SlotRow:
    story = frame.ledger[slot.request_id]
    step = frame.record.step if frame.record else 0
    progress = f"{slot.num_output_tokens:,}/{slot.max_tokens:,}"
    share = slot.num_output_tokens / slot.max_tokens
    phase, note, note_style, is_busy = _phase(slot, segment), "", "dim", True
    held = slot if slot.held else now if now and now.held and now.request_id == slot.request_id else None
    reason = story.finish.reason if story.finish and (frame.is_live or story.is_finished_at(step)) else ""
    if now is None or now.request_id != slot.request_id or _is_released(frame, slot):
        is_busy = False
        phase = ended(reason) if reason else "back in the queue"
        note = "slot free" if reason else ""
    elif held and held.held_steps and reason:
        phase, share = "dead", -1.0
        note = f"slot held {count(held.held_steps, 'step')}"
        note_style = "warn"
    elif reason:
        until = (
            "until the wave ends" if frame.record and frame.record.mode == "static" else "for one more row"
        )
        phase, note = ended(reason), f"slot held {until}" if held or _holds(frame) else ""
        note_style = "warn"
    if reason and story.verified is not None:
        words = f"{mark(story.verified)[0]} {short_words(story.verified)}"
        note = f"{words} · {note}" if note else words
        note_style = "warn" if story.verified.verdict == "differs" else note_style
    if frame.is_live and frame.state.is_out_of_sight:
        is_busy, note, note_style = False, "last seen", "warn"
    if is_closing and is_busy:
        note = join(((("slot closes when it ends", ""),), ((note, ""),) if note else ()), " · ")[0][0]
    return SlotRow(
        slot.slot,
        slot.request_id,
        phase,
        is_busy,
        note,
        note_style,
        None if share < 0 else share,
        progress,
        is_closing,
    )


def _is_released(frame: Frame, slot: SlotRecord) -> bool:
    record = frame.record
    return record is not None and any(
        one.slot == slot.slot and one.request_id == slot.request_id for one in record.events.released
    )


def _holds(frame: Frame) -> bool:
    return frame.record is not None and frame.record.mode == "static" and not frame.record.events.barrier


def _phase(slot: SlotRecord, segment: Segment | None) -> str:
    if segment is None:
        return "not in this step"
    if segment.kind == "decode":
        drafts = segment.drafts
        return f"decode {drafts.accepted}/{drafts.fed} drafts" if drafts else "decode"
    if segment.kind == "dead":
        return "dead"
    own = segment.q_len - segment.num_drafts
    done = segment.position + own
    if segment.num_prompt_left or segment.position:
        return f"prefill {done:,}/{max(slot.num_prompt_tokens, done):,}"
    return f"prefill {own:,}"


@dataclass(frozen=True, slots=True)
class SlotColumns:
    """Widths of a line's columns in cells, the same for all lines of a frame."""

    number: int
    badge: int
    phase: int
    bar: int
    progress: int


def slot_columns(frame: Frame, rows: list[SlotRow], cells: int) -> SlotColumns:
    """Columns for a line of `cells` cells. Long phases and the bar give way first."""
    is_wide = cells >= WIDE
    return SlotColumns(
        number=len(str(max(0, len(rows) - 1))),
        badge=badge_cells(frame.badges, [r.request_id for r in rows]),
        phase=max([17, *(len(r.phase) for r in rows if r.request_id)]) if is_wide else 11,
        bar=_BAR_MAX if is_wide else 8 if cells >= 66 else 0,
        progress=max([5, *(len(r.progress) for r in rows)]),
    )


def slot_line(frame: Frame, row: SlotRow, columns: SlotColumns, cells: int) -> Line:
    """One slot on one line of `cells` cells."""
    is_selected = bool(row.request_id) and row.request_id == frame.selected
    number = str(row.slot).rjust(columns.number)
    head: Line = (("▸" if is_selected else " ", "cursor" if is_selected else ""), (number + " ", "dim"))
    if not row.request_id:
        if row.is_busy:
            return (*head, ("  " + clip(row.phase, cells - columns.number - 4), "dim"))
        sentence = EMPTY["slots"] if frame.record is None and row.slot == 0 else ""
        return (*head, (fit("  idle", columns.badge + 1 + columns.phase), "dim"), (sentence, "dim"))
    badge = frame.badges[row.request_id]
    phase = row.phase if len(row.phase) <= columns.phase else _short(row.phase)
    style = (
        "strong" if row.phase.startswith(("prefill", "finished", "ended")) else "" if row.is_busy else "dim"
    )
    parts = [*head, *badge_cell(badge, columns.badge), (" " + fit(phase, columns.phase) + " ", style)]
    if columns.bar:
        if row.bar is None:
            parts.append(("░" * columns.bar, "dim"))
        else:
            parts.extend(bar(row.bar, columns.bar, f"fill:{badge.colour}"))
        parts.append((" ", ""))
    parts.append((row.progress.rjust(columns.progress) + "  ", "" if row.is_busy else "dim"))
    room = cells - sum(len(text) for text, _ in parts)
    note_text = row.note
    if phase != row.phase and row.phase.startswith(("finished", "ended")):
        reason = row.phase.partition(" ")[2].strip("()")
        note_text = f"{reason}, {row.note}" if row.note else reason
    if note_text:
        # The remark is the news; at least a third of the room stays for the text.
        note = clip(note_text, room)
        parts.append((note, row.note_style))
        room -= len(note)
        if room > 12:
            parts.append((" · ", "dim"))
            room -= 3
        else:
            room = 0
    if room > 0:
        step = frame.record.step if frame.record else 0
        text = newest_text(frame.ledger, frame.ledger[row.request_id], step, room)
        is_quiet = bool(note_text) or not row.is_busy
        parts.extend((t, "dim" if is_quiet else s) for t, s in text)
    return tuple(parts)


def _short(phase: str) -> str:
    """A phase in eleven cells."""
    word, _, rest = phase.partition(" ")
    if word == "prefill":
        return "pre " + rest if len(rest) <= 7 else "prefill"
    if word == "decode":
        return phase.removesuffix(" drafts")
    return {"not": "not now", "back": "queued", "ended,": "ended"}.get(word, word)


def slots_title(frame: Frame, rows: list[SlotRow], first: int, num_visible: int) -> str:
    """`Slots 3/3`, or which of them are in view, and a limit that is about to change."""
    limit = slot_count(frame)
    if not rows:
        return "Slots"
    held = sum(row.is_busy and row.bar is None and bool(row.request_id) for row in rows)
    is_gone = frame.is_live and frame.state.is_out_of_sight
    busy = sum(bool(row.request_id) if is_gone else row.is_busy for row in rows) - held
    if 0 < num_visible < len(rows):
        last = min(len(rows), first + num_visible) - 1
        title = f"Slots {first}–{last} of {len(rows)} · {busy} busy"
    else:
        title = f"Slots {busy}/{limit}"
    title += f" · {held} held" if held else ""
    if is_gone:
        return f"{title} · as last seen"
    pending = frame.state.pending_config
    if frame.is_live and pending is not None and pending.max_num_seqs != limit:
        title += f" → {pending.max_num_seqs} at the next step"
    return title


class Slots(RequestList):
    """The panel of slots."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[SlotRow] = []

    def _show(self, frame: Frame) -> None:
        rows = self._rows = slot_rows(frame)
        columns = slot_columns(frame, rows, self.line_width)

        def make(y: int, cells: int) -> Line:
            return slot_line(frame, rows[y], columns, cells) if rows else ((" " + EMPTY["slots"], "dim"),)

        self.draw_requests([row.request_id for row in rows], max(1, len(rows)), make, frame)
        self._show_title()

    def _show_title(self) -> None:
        if self._frame is not None:
            self.title(slots_title(self._frame, self._rows, self.first_line, self.num_visible))

    def scroll_to_slot(self, first: int) -> None:
        """Show the slots from `first` on (the timeline was scrolled)."""
        if first != self.first_line:
            self.scroll_to(y=first, animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Say which slots are in view now."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._show_title()
            self.post_message(SlotsScrolled(round(new_value)))
