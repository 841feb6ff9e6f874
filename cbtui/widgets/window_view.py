"""A panel that draws a window of a larger picture: headings stay, the rest scrolls both ways.

Owns drawing styles, scrolling and the cache of strips; what a line says is its subclasses' business.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip

from cbtui.following.frame import Frame
from cbtui.looks.colours import block_style, ink_style, mix, shape_colour, text_on
from cbtui.looks.pieces import Line, clip_line
from cbtui.widgets.lines import LinesView

#: How strong the colour of a cached key is where no shading fits; about that of `▒`.
CACHED_SHARE = 0.5


class WindowView(LinesView):
    """Lines made for the visible window only; those that did not change are not drawn again.

    A subclass implements `compose_window` and says with `extent` how far the picture scrolls.
    """

    COMPONENT_CLASSES = {"window--faint", "window--padding", "window--target"}
    DEFAULT_CSS = """
    WindowView {
        overflow: scroll scroll;
        scrollbar-size: 0 0;
        & > .window--faint { color: $foreground 35%; }
        & > .window--padding { color: $foreground 45%; }
        & > .window--target { background: $accent; color: $background; text-style: bold; }
    }
    """
    #: What an empty panel says it will show.
    PURPOSE = ""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._frame: Frame | None = None
        self._window: list[Line] = []
        self._window_strips: dict[int, Strip] = {}

    # -- for subclasses --------------------------------------------------------------------------

    def compose_window(self, width: int, height: int) -> list[Line]:
        """The lines of the window, from the top."""
        raise NotImplementedError

    def extent(self, columns: int, lines: int) -> None:
        """How far the picture scrolls: `columns` × `lines` beyond nothing, headings included.

        What fits has no extent: each new one would lay the whole screen out again.
        """
        room = self.scrollable_content_region
        size = Size(columns if columns > room.width else 0, lines if lines > room.height else 0)
        if self.virtual_size != size:
            self.virtual_size = size

    @property
    def scrolls(self) -> bool:
        """Whether the picture is larger than the window."""
        return self.max_scroll_x > 0 or self.max_scroll_y > 0

    def purpose(self) -> list[Line]:
        """The one dim line of an empty panel."""
        return [((self.PURPOSE, "dim"),)]

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        self._frame = frame
        self.redraw()

    def redraw(self) -> None:
        """Make the window's lines again and refresh those that differ."""
        region = self.scrollable_content_region
        width, height = region.width, region.height
        if width <= 0 or height <= 0:
            return
        lines = [clip_line(line, width) for line in self.compose_window(width, height)[:height]]
        lines.extend([()] * (height - len(lines)))
        for y, line in enumerate(lines):
            if y >= len(self._window) or self._window[y] != line:
                self._window_strips.pop(y, None)
                self.refresh(Region(0, y, width, 1))
        self._window = lines

    # -- drawing ---------------------------------------------------------------------------------

    def visible_lines(self) -> list[Line]:
        """The lines on screen as last drawn."""
        return list(self._window)

    def render_line(self, y: int) -> Strip:
        """The strip of a line on screen, from the cache unless it changed."""
        width = self.scrollable_content_region.width
        strip = self._window_strips.get(y)
        if strip is None or strip.cell_length != width:
            line = self._window[y] if y < len(self._window) else ()
            base = self._style("base")
            segments = [Segment(text, base + self._style(name)) for text, name in line]
            strip = self._window_strips[y] = Strip(segments).adjust_cell_length(width, base)
        return strip

    def _make_style(self, name: str) -> Style:
        kind, _, colour = name.partition(":")
        if kind in ("block", "sampled"):
            base = self._style("base").bgcolor
            ground = base.get_truecolor().hex if base is not None else "#000000"
            if kind == "block":
                return block_style(colour, ground)
            return ink_style(colour, ground) + Style(bold=True, underline=True)
        if kind == "half":
            return self._half_style(colour)
        if kind == "reverse":
            return Style(reverse=True)
        if kind == "target":
            return self.get_visual_style("window--target").rich_style
        if kind in ("faint", "padding"):
            return Style(color=self.get_visual_style(f"window--{name}").rich_style.color)
        return super()._make_style(name)

    def _half_style(self, halves: str) -> Style:
        """Colours of a place shared by two queries: the sign's, and the ground's where the lower has one.

        `~#rrggbb` is a cached key (half as strong), `padding` what padding fills.
        """
        ground = self._style("base").bgcolor
        background = ground.get_truecolor().hex if ground is not None else "#000000"

        def shade(half: str) -> str:
            if half == "padding":
                return mix(background, text_on(background), 0.25)
            colour = shape_colour(half.lstrip("~"), background)
            return mix(background, colour, CACHED_SHARE) if half[0] == "~" else colour

        upper, _, lower = halves.partition("/")
        return Style(color=shade(upper), bgcolor=shade(lower) if lower else None)

    def _forget(self) -> None:
        self._window_strips.clear()
        super()._forget()

    def _renew(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        """Everything depends on the size."""
        self._window_strips.clear()
        self.redraw()

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        """Make the columns that came into view."""
        super().watch_scroll_x(old_value, new_value)
        if round(old_value) != round(new_value):
            self.redraw()
