"""The scales the mask can be looked at on, from folded to the smallest cells, and what each draws. Pure."""

from __future__ import annotations

from enum import Enum

from cbtui.drawing.mask import Lookback, MaskDrawing, folded
from cbtui.drawing.mask_dense import dense_cells
from cbtui.drawing.mask_layout import cell_layout
from cbtui.drawing.mask_overview import OverviewMask
from cbtui.drawing.mask_spots import Drawing
from cbtui.telling.naming import Badges
from engine.stream.records import StepRecord


class Zoom(Enum):
    """A scale; its value says what it shows."""

    FOLDED = "mask folded: what all of a sequence's queries may see is one bar"
    WIDE = "true mask cells, two columns each"
    NARROW = "true mask cells, one column each"
    DENSE = "true mask cells, a column × half a row: ▀ and ▄ are one query each"
    OVERVIEW = "the whole mask: each cell stands for a block of queries × keys"

    @property
    def is_true(self) -> bool:
        """Whether every cell of the mask is drawn."""
        return self in (Zoom.WIDE, Zoom.NARROW, Zoom.DENSE)


def drawing_at(
    zoom: Zoom,
    record: StepRecord,
    badges: Badges,
    lookback: Lookback,
    width: int,
    height: int,
    window: int | None = None,
) -> Drawing:
    """The step's mask on a scale, for a view of `width` × `height` cells, in layers of that window."""
    match zoom:
        case Zoom.FOLDED:
            return folded(record, badges, lookback, width, height, window)
        case Zoom.WIDE | Zoom.NARROW:
            cell = 2 if zoom is Zoom.WIDE else 1
            return MaskDrawing(record, badges, cell_layout(record, badges, cell), lookback, window)
        case Zoom.DENSE if record.shape[1] == 1:  # no second query to share a line with
            return MaskDrawing(record, badges, cell_layout(record, badges, 1), lookback, window)
        case Zoom.DENSE:
            return dense_cells(record, badges, window)
        case Zoom.OVERVIEW:
            return OverviewMask(record, badges, width, height, window=window)


def ladder(record: StepRecord, badges: Badges, width: int, height: int) -> list[Zoom]:
    """The scales worth going through: from the largest cells to the first that shows all without scrolling.

    Two columns a cell come first only where their width fits; the overview always fits, so it ends all.
    """
    steps = [Zoom.FOLDED]
    for zoom in (Zoom.WIDE, Zoom.NARROW, Zoom.DENSE):
        per_line = 2 if zoom is Zoom.DENSE else 1
        layout = cell_layout(record, badges, 2 if zoom is Zoom.WIDE else 1, per_line)
        is_narrow = layout.columns <= width
        if (zoom is Zoom.WIDE and not is_narrow) or (zoom is Zoom.DENSE and record.shape[1] == 1):
            continue
        steps.append(zoom)
        if is_narrow and sum(len(band.rows) for band in layout.bands) < height:
            return steps
    return [*steps, Zoom.OVERVIEW]
