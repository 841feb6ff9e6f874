"""A scrolling panel of styled lines that redraws only the lines that changed.

Owns styles, caching and scrolling; what a line says is its subclasses' business. A subclass hands
`draw()` a number of lines and a function that makes one of them; only visible lines are ever made.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cbtui.looks.colours import TEXT_CONTRAST, badge_style, contrast, shape_colour
from cbtui.looks.pieces import STYLES, Line
from cbtui.telling.naming import Badge

#: Makes line `y` for a width in cells.
LineMaker = Callable[[int, int], Line]


class LinesView(ScrollView):
    """Lines of pieces. Style names are those of `cbtui.looks.pieces`.

    The scroll bar's column is kept free whether or not there is one, so that a line is as wide before the
    panel scrolls as after: what was wrapped to the width stays whole. Panels that never scroll hide their
    overflow and have that column, too.
    """

    COMPONENT_CLASSES = {f"lines--{name}" for name in STYLES if name}
    DEFAULT_CSS = """
    LinesView {
        background: $background;
        color: $foreground 85%;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        & > .lines--dim { color: $foreground 55%; }
        & > .lines--strong { color: $foreground; text-style: bold; }
        & > .lines--accent { color: $text-accent; text-style: bold; }
        & > .lines--warn { color: $text-warning; }
        & > .lines--track { color: $foreground 25%; }
        & > .lines--chip { background: $foreground 20%; color: $foreground; text-style: bold; }
        & > .lines--bar { color: $foreground 60%; }
        & > .lines--cursor { background: $foreground 8%; color: $text-accent; }
        &:focus > .lines--cursor { background: $foreground 16%; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._make: LineMaker = _nothing
        #: Lines there are, those beyond the window too.
        self.count = 0
        self._lines: dict[int, Line] = {}
        self._strips: dict[int, Strip] = {}
        self._styles_by_name: dict[str, Style] = {}
        self._title = ""
        #: Stands before every title: whose panel it is, where there are several of a kind.
        self.title_prefix = ""

    # -- for subclasses -----------------------------------------------------------------------

    @property
    def line_width(self) -> int:
        """Cells of a line."""
        return self.scrollable_content_region.width

    @property
    def first_line(self) -> int:
        """Number of the topmost visible line."""
        return self.scroll_offset.y

    @property
    def num_visible(self) -> int:
        """Lines that fit."""
        return self.scrollable_content_region.height

    def draw(self, count: int, make: LineMaker) -> None:
        """Show `count` lines made by `make`; refreshes only the visible lines that differ."""
        self._make, self.count = make, count
        self._fit()
        self._renew()

    def _fit(self) -> None:
        """What fits has no extent: each new one would lay the whole screen out again."""
        extent = Size(0, self.count if self.count > self.num_visible else 0)
        if self.virtual_size != extent:
            self.virtual_size = extent

    def title(self, text: str) -> None:
        """Set the border title; nothing happens when it is the same."""
        text = self.title_prefix + text
        if text != self._title:
            self._title = text
            # Set the usual way, a title has the whole panel painted again, at nearly every step.
            self._border_title = Content(text)
            x, y = self.content_offset
            self.refresh(Region(-x, -y, self.outer_size.width, 1))

    def visible_lines(self) -> list[Line]:
        """The lines on screen as last drawn."""
        return [line for _, line in sorted(self._lines.items())]

    # -- drawing ------------------------------------------------------------------------------

    def _renew(self) -> None:
        width, first, count = self.line_width, self.first_line, self.count
        visible = range(first, first + self.num_visible)
        for y in [y for y in self._lines if y not in visible]:
            del self._lines[y]
            self._strips.pop(y, None)
        for y in visible:
            line = self._make(y, width) if y < count else ()
            if self._lines.get(y) != line:
                self._lines[y] = line
                self._strips.pop(y, None)
                self.refresh_line(y)

    def render_line(self, y: int) -> Strip:
        """The strip of a line on screen, from the cache unless it changed."""
        number = y + self.first_line
        strip = self._strips.get(number)
        width = self.line_width
        if strip is None or strip.cell_length != width:
            line = self._lines.get(number)
            if line is None:
                line = self._make(number, width) if number < self.count else ()
                self._lines[number] = line
            strip = self._strips[number] = self._strip(line, width)
        return strip

    def _strip(self, line: Line, width: int) -> Strip:
        base = self._style("base")
        if line and line[0][1] == "cursor":
            base += Style(bgcolor=self._style("cursor").bgcolor)
        segments = [Segment(text, base + self._style(name)) for text, name in line if text]
        return Strip(segments).adjust_cell_length(width, base)

    def _style(self, name: str) -> Style:
        style = self._styles_by_name.get(name)
        if style is None:
            style = self._styles_by_name[name] = self._make_style(name)
        return style

    def _make_style(self, name: str) -> Style:
        if not name:
            return Style()
        if name == "base":
            return self.visual_style.rich_style
        kind, _, colour = name.partition(":")
        if kind == "badge":
            return badge_style(Badge("", colour))
        background = self.visual_style.background
        ground = background.hex6 if background else "#000000"
        if kind == "fill":
            return Style(color=shape_colour(colour, ground))
        if kind == "ink":
            is_legible = contrast(colour, ground) >= TEXT_CONTRAST
            return Style(color=colour) if is_legible else self._style("strong")
        style = self.get_visual_style(f"lines--{name}").rich_style
        if name in ("chip", "cursor", "brand"):
            return style
        return Style(color=style.color, bold=style.bold, italic=style.italic, underline=style.underline)

    def _forget(self) -> None:
        self._lines.clear()
        self._strips.clear()
        self._styles_by_name.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Drop what was drawn with the styles before."""
        super().notify_style_update()
        self._forget()

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor line looks different with focus."""
        super().watch_has_focus(has_focus)
        self._forget()

    def on_resize(self) -> None:
        """Lines depend on the width."""
        self._lines.clear()
        self._strips.clear()
        self._fit()
        self._renew()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Make the lines that came into view."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._renew()


def _nothing(y: int, width: int) -> Line:
    return ()
