"""The KV cache over the screen: the whole pool of blocks, and who owns which."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from cbtui.drawing.kv_blocks import LEGEND, PoolDrawing
from cbtui.following.frame import Frame
from cbtui.keys import BLOCKS_KEYS, bindings
from cbtui.looks.pieces import Line
from cbtui.screens.overlay import Overlay
from cbtui.widgets.window_view import WindowView


class BlockGrid(WindowView, can_focus=True):
    """The pool in the shown step; scrolls, and the legend stays."""

    PURPOSE = "Which request owns which block of the KV cache, in every step"
    DEFAULT_CSS = "BlockGrid { height: 1fr; background: $surface; }"

    def compose_window(self, width: int, height: int) -> list[Line]:
        """The visible lines, and the legend below."""
        if self._frame is None or self._frame.record is None:
            self.extent(0, 0)
            return self.purpose()
        drawing = PoolDrawing(self._frame, width)
        body = max(1, height - 2)
        self.extent(0, drawing.count + height - body)
        first = self.scroll_offset.y
        lines = [drawing.line(first + y) for y in range(body)]
        return [*lines, (), LEGEND] if height > 2 else lines


class BlocksScreen(Overlay):
    """Dismisses itself on Esc, q or k."""

    DEFAULT_CSS = """
    BlocksScreen {
        align: center middle;
        & > Vertical {
            width: 94%;
            max-width: 150;
            height: 80%;
            background: $surface;
            border: round $accent;
            padding: 0 1;
        }
    }
    """
    KEYS = (*BLOCKS_KEYS, *Overlay.KEYS)
    HINTS = ("Esc closes", "↑↓ scroll", "[ ] step back/forth", "{ } events", "space pause", "s step")
    BINDINGS = bindings(BLOCKS_KEYS)

    _lines = 0

    def on_resize(self) -> None:
        self._lines = 0
        self.call_after_refresh(self.show, self._frame)
        self.call_after_refresh(self.hint, self.query_one(Vertical))

    def compose(self) -> ComposeResult:
        with Vertical():
            yield BlockGrid()

    def on_mount(self) -> None:
        """Draw the frame it was opened with."""
        self.query_one(BlockGrid).focus()
        self.show(self._frame)

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        if self._frame is frame and self._frame.record is None:
            return
        self._frame = frame
        if self.is_attached and self.query(BlockGrid):
            where = "live" if frame.is_live else f"of {frame.state.step:,}"
            self.query_one(Vertical).border_title = Content(f" KV blocks · step {frame.step:,} {where} ")
            self._fit(frame)
            self.query_one(BlockGrid).show(frame)

    def _fit(self, frame: Frame) -> None:
        """Make the box as high as the pool and all slots need; what does not fit scrolls."""
        if frame.record is None:
            return
        grid = self.query_one(BlockGrid)
        rows = -(-frame.record.num_blocks // PoolDrawing(frame, max(20, grid.size.width)).row)
        lines = rows + frame.record.max_num_seqs + 8
        if lines != self._lines:
            self._lines = lines
            self.query_one(Vertical).styles.height = min(lines, self.app.size.height * 9 // 10)
