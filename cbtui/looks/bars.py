"""Bars and sparklines in eighths of a cell. Pure text; the colours are the caller's."""

from __future__ import annotations

from collections.abc import Sequence

from cbtui.looks.pieces import Line

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(share: float, cells: int, fill: str = "bar") -> Line:
    """A bar of `cells` cells filled to `share` (0–1) in eighths of a cell, on a dotted track.

    Anything above nothing shows at least one eighth, and only the whole shows a full bar.
    """
    share = min(1.0, max(0.0, share))
    eighths = round(share * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    if share < 1:
        eighths = min(eighths, cells * 8 - 1)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    return tuple(piece for piece in ((drawn, fill), ("·" * (cells - len(drawn)), "track")) if piece[0])


def gauge(share: float, cells: int) -> Line:
    """A thin bar filled to `share` (0–1) in halves of a cell: gauges above each other stay apart."""
    share = min(1.0, max(0.0, share))
    halves = round(share * cells * 2)
    if share > 0:
        halves = max(1, halves)
    if share < 1:
        halves = min(halves, cells * 2 - 1)
    full, half = divmod(halves, 2)
    drawn = "━" * full + "╸" * half
    return tuple(piece for piece in ((drawn, "bar"), ("─" * (cells - len(drawn)), "track")) if piece[0])


def column(height: float) -> str:
    """What a column fills of a cell whose floor lies `height` cells below the column's top."""
    return (" " + _HEIGHTS)[round(min(1.0, max(0.0, height)) * 8)]


def sparkline(values: Sequence[float], cells: int) -> str:
    """The newest values as columns, right-aligned in `cells` cells, the highest one full height."""
    if cells <= 0:
        return ""
    values = values[-cells:]
    top = max(values, default=0.0)
    if top <= 0:
        return (_HEIGHTS[0] * len(values)).rjust(cells)
    return "".join(_HEIGHTS[min(7, int(value / top * 7.999))] for value in values).rjust(cells)
