"""When each request of a race waited, ran and ended, a bar a lane on one scale. Pure.

[A] ■ ━━━6
    ● ━━━6
[D] ■ ··················━━━━330
    ● ·━━━36
"""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.drawing.window import merged
from cbtui.looks.pieces import Line, Piece
from cbtui.racing.score import Lane
from cbtui.racing.words import shape
from cbtui.telling.words import badge_cell, badge_cells
from engine.stream.ledger import RequestStory

WAITS, RUNS, HELD = "·", "━", "░"
#: What the signs mean.
LEGEND: Line = (("· waits  ━ runs  ░ slot held after its end", "dim"),)


def finish_lines(lanes: Sequence[Lane], cells: int) -> list[Line]:
    """Two lines a request, in order of arrival.

    Args:
        cells: of a line; the last step's number has room behind the longest bar.
    """
    frame = lanes[0].frame
    stories = [{story.request_id: story for story in lane.stories} for lane in lanes]
    gutter = badge_cells(frame.badges, list(stories[0]))
    steps = max([1, *(lane.run.steps for lane in lanes if lane.run)])
    room = max(4, cells - gutter - 3 - len(f"{steps:,}") - 3)
    lines: list[Line] = []
    for request_id in {request_id: None for of_lane in stories for request_id in of_lane}:
        for number, lane in enumerate(lanes):
            head: Line = badge_cell(frame.badges[request_id], gutter) if not number else ((" " * gutter, ""),)
            story = stories[number].get(request_id)
            colour = frame.badges[request_id].colour
            bar = () if story is None else _bar(story, lane, colour, room / steps)
            lines.append(merged([*head, (f" {shape(lane.name)} ", "dim"), *bar]))
    return lines


def _bar(story: RequestStory, lane: Lane, colour: str, scale: float) -> list[Piece]:
    now = lane.run.steps if lane.run else 0
    begin = now if story.first_step is None else story.first_step - 1
    end = (story.token_steps[-1] if story.token_steps else now) if story.finish else now
    freed = story.release_step if story.release_step is not None else now
    marks = [round(step * scale) for step in (begin, end, max(end, freed))]
    pieces: list[Piece] = [(WAITS * marks[0], "track")]
    runs = max(marks[1] - marks[0], 1 if story.first_step is not None else 0)
    pieces.append((RUNS * runs, f"fill:{colour}"))
    if story.finish:
        held = max(0, marks[2] - marks[0] - runs) if story.dead_steps else 0
        pieces += [(f" {end:,} ", "strong"), (HELD * max(0, held - len(f" {end:,} ")), "track")]
    return [piece for piece in pieces if piece[0]]
