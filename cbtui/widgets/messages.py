"""What panels tell their screen. The screen decides; panels only ever draw the next frame."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class RequestSelected(Message):
    """The cursor moved to a request."""

    request_id: str


@dataclass
class RequestOpened(Message):
    """A request's whole text is wanted (enter, or a double click)."""

    request_id: str


@dataclass
class SlotsScrolled(Message):
    """The slots panel shows its lines from slot `first` on; the timeline keeps in step with it."""

    first: int


@dataclass
class StepChosen(Message):
    """A recorded step is to be shown (a click on the timeline)."""

    step: int
