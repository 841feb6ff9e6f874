"""The one container of the main screen: lays its panels out as an `Arrangement` says."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from cbtui.screens.arrangement import Arrangement

#: Panels drawn above the one they stand on.
_ABOVE = ("tabs", "centre")


class DeckLayout(Layout):
    """Places children by id; those an arrangement does not name have no place."""

    name = "deck"

    def __init__(self) -> None:
        self.arrangement = Arrangement("tiny", {})

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """The placements of the children shown."""
        regions = self.arrangement.regions
        return [
            WidgetPlacement(
                regions[child.id], NULL_OFFSET, NULL_SPACING, child, order=1 if child.id in _ABOVE else 0
            )
            for child in children
            if child.id is not None and child.id in regions
        ]


class Deck(Widget):
    """Holds every panel of the main screen, shown or not."""

    DEFAULT_CSS = """
    Deck { width: 100%; height: 100%; }
    """

    def __init__(self, *panels: Widget, id: str | None = None) -> None:
        super().__init__(*panels, id=id)
        self._places = DeckLayout()

    @property
    def layout(self) -> Layout:
        """Panels are placed by code, not by a style sheet."""
        return self._places

    @property
    def arrangement(self) -> Arrangement:
        return self._places.arrangement

    def arrange_as(self, arrangement: Arrangement) -> bool:
        """Take on an arrangement; whether anything moved."""
        if arrangement == self._places.arrangement:
            return False
        self._places.arrangement = arrangement
        for panel in self.children:
            panel.display = panel.id in arrangement.regions
            # A widget's refresh makes its ancestors, not itself, forget where their children were.
            panel.refresh(layout=True)
        return True
