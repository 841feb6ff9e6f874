"""The time between a request's output tokens, for lessons on what a long prompt does to the others."""

from __future__ import annotations

from cbtui.drawing.gaps import gaps_of, newest_gaps
from cbtui.following.frame import Frame
from cbtui.widgets.lines import LinesView


class GapPlot(LinesView, can_focus=False):
    """Of the first request of a lane."""

    def show_gaps(self, frame: Frame, longest_s: float) -> None:
        """Draw a frame, on a scale that lanes share."""
        stories = frame.ledger.in_order
        if not stories:
            return
        story = stories[0]
        badge = frame.badges[story.request_id]
        self.title(f"Time between {badge.letter}'s tokens")
        gaps = gaps_of(story)
        if not gaps:
            self.draw(1, lambda y, cells: (("a column a token, once there are two", "dim"),))
            return
        height = self.num_visible
        lines = newest_gaps(gaps, max(longest_s, *gaps), badge.colour, self.line_width, height)
        self.draw(len(lines), lambda y, cells: lines[y] if y < len(lines) else ())
