"""The table of panels: which widget shows what, and what its picture depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.widget import Widget

from cbtui.frame import Frame
from cbtui.screens.arrangement import TABS, Kind
from cbtui.widgets.counters import Counters, CountersLine
from cbtui.widgets.finished import Finished
from cbtui.widgets.header import Header
from cbtui.widgets.mask_grid import MaskGrid
from cbtui.widgets.packed_row import PackedRow
from cbtui.widgets.slots import Slots
from cbtui.widgets.timeline import Timeline
from cbtui.widgets.waiting import Waiting
from cbtui.widgets.what_happened import WhatHappened, WhatHappenedBrief


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        id: also its name in arrangements.
        widget: its class.
        depends: gives a value that differs whenever the picture may differ.
        takes_focus: whether there is anything to scroll or select in it.
    """

    id: str
    widget: Callable[..., Widget]
    depends: Callable[[Frame], object]
    takes_focus: bool = True

    def make(self) -> Widget:
        """The widget."""
        widget = self.widget(id=self.id)
        widget.can_focus = self.takes_focus
        return widget

    def show(self, widget: Any, frame: Frame) -> None:
        """Hand the frame to the widget: every panel has `show(frame)`."""
        widget.show(frame)


def _state(frame: Frame) -> object:
    return frame.state.version, frame.state.status, frame.selected, len(frame.records)


def _step(frame: Frame) -> object:
    return id(frame.record), id(frame.records), len(frame.records), frame.state.config


PANELS: tuple[Panel, ...] = (
    Panel("header", Header, _state, takes_focus=False),
    Panel("brief", CountersLine, _state, takes_focus=False),
    Panel("slots", Slots, _state),
    Panel("waiting", Waiting, _state),
    Panel("counters", Counters, _state, takes_focus=False),
    Panel("row", PackedRow, _step),
    Panel("mask", MaskGrid, _step),
    Panel("finished", Finished, _state),
    Panel("happened", WhatHappened, _state),
    Panel("news", WhatHappenedBrief, _state, takes_focus=False),
    Panel("timeline", Timeline, _step),
)


def tab_titles(kind: Kind, frame: Frame) -> tuple[str, ...]:
    """The heads of the tabs; those of queues say how many are in them."""
    state = frame.state
    counts = {
        "Waiting": state.waiting_count + state.arriving_count,
        "Finished": len(frame.ledger.finished),
    }
    return tuple(f"{title} {counts[title]:,}" if title in counts else title for title, _ in TABS[kind])
