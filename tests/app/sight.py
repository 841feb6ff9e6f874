"""What of a screen can be seen: lines that are wider or more than their panel shows, and texts cut off."""

from __future__ import annotations

from textual.screen import Screen
from textual.widgets import Static

from cbtui.looks.pieces import line_width, plain
from cbtui.widgets.lines import LinesView
from cbtui.widgets.window_view import WindowView


def unseen(screen: Screen[object]) -> list[str]:
    """A sentence for everything that is cut off without saying so."""
    found: list[str] = []
    for view in screen.query(LinesView):
        if view.display and view.region.area:
            found.extend(_of_view(view))
    for text in screen.query(Static):
        if text.display and text.region.area and _is_cut(screen, text):
            found.append(f"{text!r}: {text.visual}")
    return found


def _of_view(view: LinesView) -> list[str]:
    """Of a panel: lines as drawn, or those it would draw when scrolled."""
    visible = view.scrollable_content_region.width
    if isinstance(view, WindowView):
        lines = view.visible_lines()  # cut with a sign where they are too long
    else:
        lines = [view._make(y, view.line_width) for y in range(view.count)]
        lines += view.visible_lines()
    name = view.id or type(view).__name__
    found = [f"{name} ({visible} cells): {plain(line)}" for line in lines if line_width(line) > visible]
    cannot_scroll = view.styles.overflow_y == "hidden"
    if cannot_scroll and view.count > view.num_visible:
        below = [plain(line) for line in lines[view.num_visible : view.count]]
        found.append(f"{name} has no room for {below}")
    return found


def _is_cut(screen: Screen[object], text: Static) -> bool:
    """Whether a text is wider than its place, or its place lies beyond what is shown sideways."""
    place = screen.find_widget(text)
    region, clip = place.region, place.clip
    if region.x < clip.x or region.right > clip.right:
        return True
    wants = text.get_content_width(screen.size, screen.size)
    if text.content_size.height > 1 or not text.content_size.height:
        return False  # it is wrapped
    return wants > text.content_size.width
