"""The table of panels: which widget shows what, and what its picture depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.widget import Widget

from cbtui.following.frame import Frame
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
    if not frame.is_live:
        return _past(frame)
    return frame.state.version, frame.state.status, frame.selected, len(frame.records)


def _now(frame: Frame) -> object:
    return _state(frame), frame.state.version, frame.state.status, bool(frame.state.stuck)


def _past(frame: Frame) -> object:
    # The engine may go on meanwhile: a step that is over does not change.
    return "past", frame.step, len(frame.records), frame.selected


def _lanes(frame: Frame) -> object:
    return frame.is_live, frame.step, id(frame.lanes), frame.lanes.last_step


def _step(frame: Frame) -> object:
    if not frame.is_live:
        return _past(frame)
    return id(frame.record), id(frame.records), len(frame.records), frame.state.config


PANELS: tuple[Panel, ...] = (
    Panel("header", Header, _now, takes_focus=False),
    Panel("brief", CountersLine, _state, takes_focus=False),
    Panel("slots", Slots, _state),
    Panel("waiting", Waiting, _state),
    Panel("counters", Counters, _state, takes_focus=False),
    Panel("row", PackedRow, _step),
    Panel("mask", MaskGrid, _step),
    Panel("finished", Finished, _state),
    Panel("happened", WhatHappened, _state),
    Panel("news", WhatHappenedBrief, _state, takes_focus=False),
    Panel("timeline", Timeline, _lanes),
)


def tab_titles(kind: Kind, frame: Frame) -> tuple[str, ...]:
    """The heads of the tabs; those of queues say how many are in them."""
    state, record = frame.state, frame.record
    is_past = record is not None and not frame.is_live
    counts = {
        "Waiting": record.waiting_count
        if record is not None and is_past
        else state.waiting_count + state.arriving_count,
        "Finished": frame.metrics.num_finished if is_past else frame.ledger.num_finished,
    }
    return tuple(f"{title} {counts[title]:,}" if title in counts else title for title, _ in TABS[kind])
