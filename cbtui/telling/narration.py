"""What happened, in words: figures, the last events, and full sentences while the view stands still.

Pure: from a frame to lines of pieces. `step_story.py` tells one step, `run_result.py` a finished run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece, clip_line, join, line_width, say, wrap
from cbtui.looks.tokens import prose
from cbtui.telling.alone import verdict_line
from cbtui.telling.naming import Badges
from cbtui.telling.provenance import at_least, doubt_in_brief, inferred_in_brief
from cbtui.telling.run_result import result_in_two_lines, result_lines
from cbtui.telling.step_story import dead_in_brief, lasting_sentences, step_sentences
from cbtui.telling.words import EMPTY, count, ended, listed, names, seconds
from engine.stream.ledger import Ledger
from engine.stream.records import Events, Finish, Record, StepRecord

#: Events shown: the newest ones.
EVENTS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, and the step it belongs to."""

    step: int
    line: Line


def figures(record: StepRecord, *, is_drafting: bool = False) -> tuple[Line, Line]:
    """A step's figures in two lines whose columns never move.

    `is_drafting`: some steps of the run have drafts.
    """
    tokens = record.tokens
    cached = sum(segment.num_cached for segment in record.segments)
    first: Line = (
        (f"step {record.step:,}".ljust(10), "strong"),
        (at_least(record, tokens.total).rjust(5), "strong"),
        (" token " if tokens.total == 1 else " tokens", "dim"),
        (at_least(record, cached).rjust(6), "strong"),
        (" cached", "dim"),
        (seconds(record.end_s - record.start_s).rjust(8), "strong"),
    )
    prompt = tokens.prompt + tokens.recomputed
    # A server that drafts packs its row: it never pads.
    last = ("rejected", tokens.rejected, 1) if is_drafting else ("padding", tokens.padding, 1)
    parts = (("prompt", prompt, 5), ("decode", tokens.decode, 4), ("dead", tokens.dead, 4), last)
    second: list[Piece] = []
    for name, number, cells in parts:
        is_fed = name in ("prompt", "decode")
        words = at_least(record, number) if is_fed else f"{number}"
        is_waste = not is_fed and number
        second += [(name + " ", "dim"), (words.ljust(cells), "warn" if is_waste else "strong")]
    return first, tuple(second)


class EventLog:
    """The last events of a growing list of records; each record is looked at once while the list grows."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._seen = 0
        self._last: Record | None = None

    def last(self, frame: Frame) -> list[Event]:
        """The newest `EVENTS_SHOWN` events up to the frame's step, newest first."""
        records = frame.records
        grew = 0 < self._seen <= len(records) and records[self._seen - 1] is self._last
        if not grew:
            self._events, self._seen = [], self._start(records, frame)
        for number in range(self._seen, len(records)):
            self._events.extend(events_of(records[number], frame.ledger, frame.badges))
        self._events = self._events[-EVENTS_SHOWN:]
        self._seen = len(records)
        self._last = records[-1] if records else None
        return self._events[::-1]

    @staticmethod
    def _start(records: Sequence[Record], frame: Frame) -> int:
        """How far back to begin so that enough events are found."""
        found, start = 0, len(records)
        while start > 0 and found < EVENTS_SHOWN:
            start -= 1
            if not records[start].events.is_empty:
                found += len(events_of(records[start], frame.ledger, frame.badges))
        return start


def events_of(record: Record, ledger: Ledger, badges: Badges) -> list[Event]:
    """A record's events in the order they came; a plain decode step has none."""
    events = record.events
    if events.is_empty:
        return []
    mode = record.mode if isinstance(record, StepRecord) else ""
    lines = [_change(change.name, change.before, change.after) for change in events.changed]
    lines += _entered(events, ledger, badges, mode, record.step)
    for gone in events.preempted:
        lost = count(gone.lost_tokens, "token")
        why = {"slots": ", surplus", "reset": ", for the KV cache was reset"}.get(gone.reason, "")
        gave_way = f" gave way in slot {gone.slot}{why}: {lost} to be fed again"
        lines.append(say(names(badges, [gone.request_id]), gave_way))
    lines += _ended(events, badges)
    if events.barrier:
        freed = slots_in_words([one.slot for one in events.released])
        lines.append(say(("barrier", "strong"), f": the wave is over, {freed} free again"))
    for one in events.verified:
        if one.verdict != "same":
            is_kept = one.request_id in badges
            who = names(badges, [one.request_id]) if is_kept else say("a request that is no longer kept")
            lines.append(say(who, " alone: ", verdict_line(one, ledger)))
    told = {finish.error for finish in events.finished}
    lines += [say(("fault", "warn"), f": {prose(error)}") for error in events.errors if error not in told]
    return [Event(record.step, line) for line in lines]


def slots_in_words(slots: Sequence[int]) -> str:
    """`slot 0`, `slots 0, 1 and 2`, `8 slots`."""
    if len(slots) > 4:
        return f"{len(slots)} slots"
    listing = "".join(text for text, _ in listed([((str(slot), ""),) for slot in slots]))
    return f"slot{'s' if len(slots) > 1 else ''} {listing}"


def _change(name: str, before: str, after: str) -> Line:
    word = {"max_num_seqs": "slots", "max_num_batched_tokens": "token budget"}.get(name, name)
    return say((word, "strong"), f" {before} → {after}")


def _entered(events: Events, ledger: Ledger, badges: Badges, mode: str, step: int) -> list[Line]:
    fresh = [one for one in events.admitted if not one.resumed]
    lines = []
    if fresh:
        where = slots_in_words([one.slot for one in fresh])
        line = say(names(badges, [one.request_id for one in fresh]), f" entered {where}")
        waited = step - 1 - ledger[fresh[0].request_id].submitted_step
        if len(fresh) == 1 and waited > 0:
            line = say(line, f" after {count(waited, 'step')} of waiting")
        lines.append(say(("wave", "strong"), ": ", line) if mode == "static" else line)
    for one in events.admitted:
        if one.resumed:
            lines.append(
                say(names(badges, [one.request_id]), f" is back, in slot {one.slot}; it is fed again")
            )
    return lines


def _ended(events: Events, badges: Badges) -> list[Line]:
    """Ends, those with one reason and one fate in one line."""
    freed = {one.request_id for one in events.released}
    groups: dict[tuple[str, str], list[Finish]] = {}
    for finish in events.finished:
        fate = ""
        if finish.slot is not None and not events.barrier:
            fate = "free" if finish.request_id in freed else "held"
        groups.setdefault((_verb(finish), fate), []).append(finish)
    lines = []
    for (verb, fate), group in groups.items():
        line = say(names(badges, [one.request_id for one in group]), f" {verb}")
        if fate:
            slots = slots_in_words([one.slot for one in group if one.slot is not None])
            line = say(line, f"; {slots} {'is' if len(group) == 1 else 'are'} ")
            line = say(line, ("free", "") if fate == "free" else ("held", "warn"))
        lines.append(line)
    return lines


def _verb(finish: Finish) -> str:
    if finish.reason == "abort":
        return "was cancelled"
    if finish.reason in ("error", "ignored"):
        word = "failed" if finish.reason == "error" else "was refused"
        return f"{word}: {prose(finish.error)}" if finish.error else word
    return ended(finish.reason)


def narration(frame: Frame, log: EventLog, cells: int) -> list[Line]:
    """Everything the panel says, wrapped to `cells`: figures, then result or sentences, then events."""
    record = frame.record
    if record is None:
        return wrap(((EMPTY["happened"], "dim"),), cells)
    is_drafting = frame.metrics.acceptance_rate is not None
    told = figures(record, is_drafting=is_drafting)
    lines: list[Line] = [*(clip_line(line, cells) for line in told), ()]
    for sentence in telling(frame):
        lines.extend(wrap(sentence, cells))
    if lines[-1]:
        lines.append(())
    for event in log.last(frame):
        label: Line = ((f"{event.step:,}".rjust(5) + "  ", "dim"),)
        first, *rest = wrap(event.line, cells - 7)
        lines.append((*label, *first))
        lines.extend(((" " * 7, ""), *line) for line in rest)
    return lines


def telling(frame: Frame) -> list[Line]:
    """Full sentences: the result of a run that ended, the shown step while the view stands still, and while
    it does not, what is so for many steps."""
    if frame.is_live and frame.run is None:
        return result_lines(frame)
    if not frame.is_live or frame.state.status == "paused":
        return step_sentences(frame)
    return lasting_sentences(frame)


def brief(frame: Frame, log: EventLog, cells: int) -> list[Line]:
    """The narration in two lines of at most `cells` cells: sentences, else figures and the last event."""
    if frame.record is None:
        return [clip_line(((EMPTY["happened"], "dim"),), cells)]
    if frame.is_live and frame.run is None:
        return [clip_line(line, cells) for line in result_in_two_lines(frame)]
    is_running = frame.is_live and frame.state.status != "paused"
    sentences = [] if is_running else telling(frame)
    if sentences:
        text = say(*[part for sentence in sentences for part in (sentence, " ")])
        first, *rest = wrap(text, cells)
        if not rest[1:]:
            return [first, *rest]
        # The second line stands for all that is cut off; what is not the server's own word is never cut.
        doubt = doubt_in_brief(frame.record) or inferred_in_brief(frame.state.provenance)
        end: Line = ((f" {doubt}", "warn"),) if doubt else ()
        return [first, (*clip_line(say(rest[0], (" …", "dim")), cells - line_width(end)), *end)]
    is_drafting = frame.metrics.acceptance_rate is not None
    first_figures, second_figures = figures(frame.record, is_drafting=is_drafting)
    # The last two names and numbers of the second line: what is wasted.
    figure_line = join((first_figures, second_figures[-4:]), "   ")
    events = log.last(frame)
    dead = dead_in_brief(frame)
    if dead and not (events and events[0].step == frame.record.step):
        return [clip_line(figure_line, cells), clip_line(dead, cells)]
    if not events:
        return [clip_line(figure_line, cells)]
    newest = say((f"step {events[0].step:,}  ", "dim"), events[0].line)
    return [clip_line(figure_line, cells), clip_line(newest, cells)]
