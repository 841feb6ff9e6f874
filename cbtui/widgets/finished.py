"""Finished requests, newest first: why each ended, how long it waited and ran, and what it says."""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, clip_line, fit
from cbtui.looks.tokens import clip, prose
from cbtui.telling.alone import is_told, mark, short_words, tally
from cbtui.telling.request_text import beginning_text
from cbtui.telling.words import EMPTY, ENDS, badge_cell, badge_cells, count
from cbtui.widgets.request_list import RequestList
from engine.stream.ledger import RequestStory

#: From this many cells on, waiting and running steps are spelled out.
WIDE = 70


def finished_at(frame: Frame) -> list[str]:
    """Ids of the requests that had ended by the shown step, newest first.

    Ends between steps (a request cancelled while it waited) belong to the step before them.
    """
    ids = frame.ledger.finished
    if frame.is_live or frame.record is None:
        return ids[::-1]
    step = frame.record.step
    return [one for one in reversed(ids) if frame.ledger[one].is_finished_at(step)]


def ending(story: RequestStory) -> str:
    """Finish reason and tokens: `length 6/6`, `cancelled 3/50`."""
    assert story.finish is not None
    word = ENDS.get(story.finish.reason, story.finish.reason)
    return f"{word} {story.finish.num_output_tokens:,}/{story.request.max_tokens:,}"


def _steps_run(story: RequestStory) -> int:
    """Steps it had a slot; between a preemption and its return it had none."""
    assert story.first_step is not None and story.finish_step is not None
    return story.steps_fed if story.num_preemptions else story.finish_step - story.first_step + 1


def course(story: RequestStory, step: int) -> str:
    """How it went up to a step: steps waited and run, and what static batching or preemption added."""
    if story.first_step is None or story.finish_step is None:
        return "never ran"
    ran = _steps_run(story)
    waited = story.finish_step - story.submitted_step - ran
    words = [f"waited {waited:,}", f"ran {count(ran, 'step')}"]
    # A held row is dead in every step from its end on.
    held = min(story.dead_steps, max(0, step - story.finish_step))
    if held:
        words.append(f"held {held:,}")
    if story.num_preemptions:
        words.append(f"preempted {story.num_preemptions}×")
    return ", ".join(words)


def course_in(story: RequestStory, step: int, cells: int) -> str:
    """The course in full where a line of `cells` has room for it, else only how long it ran."""
    if cells >= WIDE or story.first_step is None or story.finish_step is None:
        return course(story, step)
    return f"ran {count(_steps_run(story), 'step')}"


def finished_line(frame: Frame, request_id: str, columns: tuple[int, int, int], cells: int) -> Line:
    """One finished request on one line. `columns`: cells of the badge, the ending and the course."""
    badge, ended, went = columns
    story = frame.ledger[request_id]
    assert story.finish is not None
    is_selected = request_id == frame.selected
    is_bad = story.finish.reason in ("error", "ignored")
    sign: Line = (mark(story.verified), (" ", "")) if is_told(frame) else ()
    room = cells - badge - ended - went - 6 - len(sign)
    head: Line = (
        ("▸" if is_selected else " ", "cursor" if is_selected else ""),
        *badge_cell(frame.badges[request_id], badge),
        (" ", ""),
        *sign,
        (fit(ending(story), ended), "warn" if is_bad else "strong"),
        ("  " + fit(course_in(story, frame.step, cells), min(went, max(0, went + room))) + "  ", "dim"),
    )
    if room < 4:
        return clip_line(head, cells)
    if story.finish.error:
        return (*head, (clip(prose(story.finish.error), room), "warn"))
    if story.verified is not None and story.verified.verdict == "differs":
        return (*head, (clip(short_words(story.verified), room), "warn"))
    return (*head, *beginning_text(frame.ledger, story, story.finish_step or 0, room))


def finished_columns(frame: Frame, request_ids: list[str], cells: int) -> tuple[int, int, int]:
    """Cells of badge, ending and course for lines of these requests."""
    stories = [frame.ledger[one] for one in request_ids]
    return (
        badge_cells(frame.badges, request_ids),
        max((len(ending(one)) for one in stories), default=0),
        max((len(course_in(one, frame.step, cells)) for one in stories), default=0),
    )


def finished_title(frame: Frame, request_ids: list[str]) -> str:
    """How many, and how their checks went: `Finished 7 · alone ✓ 5 ✗ 1 · 1 to check`."""
    forgotten = frame.ledger.num_forgotten
    title = f"Finished {forgotten + len(request_ids):,}"
    title += f" · the newest {len(request_ids):,} kept" if forgotten else ""
    if is_told(frame):
        verdicts = tally(frame.ledger[one].verified for one in request_ids)
        title += f" · alone {verdicts}" if verdicts else ""
        title += f" · {frame.state.verifying:,} to check" if frame.state.verifying else ""
    return title


class Finished(RequestList):
    """The panel of finished requests; scrolls."""

    def _show(self, frame: Frame) -> None:
        ids = finished_at(frame)
        self.title(finished_title(frame, ids))
        forgotten = frame.ledger.num_forgotten
        if not ids:
            empty: Line = ((" " + EMPTY["finished"], "dim"),)
            self.draw_requests([], 1, lambda y, cells: empty, frame)
            return
        newest = ids[self.first_line : self.first_line + self.num_visible]
        columns = finished_columns(frame, newest, self.line_width)

        def make(y: int, cells: int) -> Line:
            if y == len(ids):
                return clip_line(((f" {count(forgotten, 'older one')} dropped (--stories)", "dim"),), cells)
            return finished_line(frame, ids[y], columns, cells)

        self.draw_requests(ids, len(ids) + bool(forgotten), make, frame)
