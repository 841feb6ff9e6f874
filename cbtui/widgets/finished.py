"""Finished requests, newest first: why each ended, how long it waited and ran, and what it says."""

from __future__ import annotations

from cbtui.frame import Frame
from cbtui.pieces import Line, fit
from cbtui.request_text import beginning_text
from cbtui.tokens import clip, prose
from cbtui.widgets.request_list import RequestList
from cbtui.words import EMPTY, badge_cell, badge_cells, count
from engine.ledger import RequestStory

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
    word = {"abort": "cancelled", "error": "failed"}.get(story.finish.reason, story.finish.reason)
    return f"{word} {story.finish.num_output_tokens:,}/{story.request.max_tokens:,}"


def course(story: RequestStory) -> str:
    """How it went: steps waited and run, and what static batching or preemption added."""
    if story.first_step is None or story.finish_step is None:
        return "never ran"
    waited = story.first_step - 1 - story.submitted_step
    words = [f"waited {waited:,}", f"ran {count(story.finish_step - story.first_step + 1, 'step')}"]
    if story.dead_steps:
        words.append(f"held {story.dead_steps:,}")
    if story.num_preemptions:
        words.append(f"preempted {story.num_preemptions}×")
    return ", ".join(words)


def finished_line(frame: Frame, request_id: str, badge: int, ending_cells: int, cells: int) -> Line:
    """One finished request on one line."""
    story = frame.ledger[request_id]
    assert story.finish is not None
    is_selected = request_id == frame.selected
    went = course(story)
    if cells >= WIDE:
        went = went.ljust(28)
    head: Line = (
        ("▸" if is_selected else " ", "cursor" if is_selected else ""),
        *badge_cell(frame.badges[request_id], badge),
        (" ", ""),
        (
            fit(ending(story), ending_cells),
            "warn" if story.finish.reason in ("error", "ignored") else "strong",
        ),
        ("  " + clip(went, max(0, cells - badge - ending_cells - 4)) + "  ", "dim"),
    )
    room = cells - badge - 2 - ending_cells - 2 - len(went) - 2
    if room < 4:
        return head
    if story.finish.error:
        return (*head, (clip(prose(story.finish.error), room), "warn"))
    step = story.finish_step or 0
    return (*head, *beginning_text(frame.ledger, story, step, room))


class Finished(RequestList):
    """The panel of finished requests; scrolls."""

    def _show(self, frame: Frame) -> None:
        ids = finished_at(frame)
        self.title(f"Finished {len(ids):,}")
        if not ids:
            empty: Line = ((" " + EMPTY["finished"], "dim"),)
            self.draw_requests([], 1, lambda y, cells: empty, frame)
            return
        newest = ids[self.first_line : self.first_line + self.num_visible]
        badge = badge_cells(frame.badges, newest)
        ending_cells = max((len(ending(frame.ledger[one])) for one in newest), default=0)

        def make(y: int, cells: int) -> Line:
            return finished_line(frame, ids[y], badge, ending_cells, cells)

        self.draw_requests(ids, len(ids), make, frame)
