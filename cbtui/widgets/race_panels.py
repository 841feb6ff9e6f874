"""The panels of a race: first line, finish lines, figures, sentence. Each draws the lanes it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.drawing.finish_lines import LEGEND, finish_lines
from cbtui.looks.pieces import Line, clip_line, join, line_width, spread, wrap
from cbtui.racing.score import Lane
from cbtui.racing.words import sentence, table
from cbtui.telling.words import count
from cbtui.widgets.header import Header, speed_words
from cbtui.widgets.lines import LinesView


def race_header(lanes: Sequence[Lane], cells: int) -> Line:
    """What races, and whether it runs."""
    state = lanes[0].frame.state
    brand: Line = ((" cbtui ", "brand"),)
    config = state.config
    requests = len(lanes[0].frame.ledger.stories)
    about = f"{count(requests, 'request')} · {count(config.max_num_seqs, 'slot')} a lane"
    if state.model is not None:
        about += f" · {state.model.name}"
    statuses = {lane.frame.state.status for lane in lanes}
    if "failed" in statuses:
        status: Line = (("✗ failed", "warn"),)
    elif all(lane.is_done for lane in lanes):
        status = (("✓ finished", "strong"),)
    elif "loading" in statuses:
        status = (("◌ reading the prompts", "warn"),)
    elif "paused" in statuses:
        status = (("‖ paused", "warn"),)
    else:
        status = (("▶ racing", "strong"),)
    speed: Line = ((speed_words(state.speed).replace("steps", "rounds"), "dim"),)
    left = join((brand, (("Race", "accent"),), status, speed), "   ")
    room = cells - line_width(left) - 3
    return spread(left, clip_line(((about, "dim"),), max(0, room)), cells)


class RaceHeader(Header):
    """The race's first line."""

    def show_lanes(self, lanes: Sequence[Lane]) -> None:
        """Draw the lanes."""
        self.draw(1, lambda _, cells: race_header(lanes, cells))


class FinishLines(LinesView, can_focus=True):
    """When each request waited, ran and ended."""

    def show_lanes(self, lanes: Sequence[Lane]) -> None:
        """Draw the lanes."""
        self.title("Finish lines, in steps")
        lines = finish_lines(lanes, self.line_width)
        if len(lines) * 3 // 2 < self.num_visible:
            # Where there is room a request stands apart from the next.
            lines = [part for n in range(0, len(lines), 2) for part in (*lines[n : n + 2], ())]
        lines.append(LEGEND)
        self.draw(len(lines), lambda y, cells: lines[y] if y < len(lines) else ())


class RaceTable(LinesView, can_focus=True):
    """The figures side by side."""

    def show_lanes(self, lanes: Sequence[Lane]) -> None:
        """Draw the lanes."""
        self.title("Figures")
        lines = table(lanes, self.line_width)
        self.draw(len(lines), lambda y, cells: lines[y] if y < len(lines) else ())


class RaceSentence(LinesView, can_focus=False):
    """What tells the lanes apart."""

    def show_lanes(self, lanes: Sequence[Lane]) -> None:
        """Draw the lanes."""
        is_over = all(lane.is_done for lane in lanes)
        self.title("What made the difference" if is_over else "Now")
        lines = [part for line in sentence(lanes) for part in wrap(line, max(20, self.line_width))]
        self.draw(len(lines), lambda y, cells: lines[y] if y < len(lines) else ())
