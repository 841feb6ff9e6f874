"""`harmless` for the screen: a filter behind every widget; apart, because it needs Textual."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from cbtui.looks.harmless import harmless


class HarmlessFilter(LineFilter):
    """Passes every line of every widget, borders and notifications too, through `harmless`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments; the very same list where nothing had to be changed."""
        if all(segment.control or segment.text.isprintable() for segment in segments):
            return segments
        return [
            segment if segment.control else Segment(harmless(segment.text), segment.style)
            for segment in segments
        ]
