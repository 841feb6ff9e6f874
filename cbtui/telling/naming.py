"""A letter and a colour for every request, the same in every panel.

Letters A…Z, then A1…Z1, A2…. A request takes, at arrival, the palette colour least used among the
unfinished ones, so neighbours differ as long as there are colours; deterministic in the record stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.stream.records import Record

#: Okabe–Ito's colour-blind-safe colours and three kin, as grounds for black or white text.
PALETTE: tuple[str, ...] = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#cc79a7",
    "#d55e00",
    "#6ea6ff",
    "#b5a3f5",
    "#a6d854",
)


def letter_of(index: int) -> str:
    """The name of the request with that arrival number: A…Z, A1…Z1, A2…"""
    lap, place = divmod(index, 26)
    return chr(ord("A") + place) + (str(lap) if lap else "")


@dataclass(frozen=True, slots=True)
class Badge:
    """How a request is named: its letter(s) and its ground colour (`#rrggbb`)."""

    letter: str
    colour: str

    @property
    def cell(self) -> str:
        """The letter alone, for places one cell wide."""
        return self.letter[0]


class Badges:
    """Gives out badges as requests arrive; `apply` each record once, in order."""

    def __init__(self) -> None:
        self._badges: dict[str, Badge] = {}
        self._uses = dict.fromkeys(PALETTE, 0)

    def __getitem__(self, request_id: str) -> Badge:
        return self._badges[request_id]

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._badges

    def forget(self, request_ids: Iterable[str]) -> None:
        """Forget the names of ended requests."""
        for request_id in request_ids:
            del self._badges[request_id]

    def apply(self, record: Record) -> None:
        """Name the arrivals of a record and give the colours of its ended requests back."""
        for request in record.events.submitted:
            colour = min(PALETTE, key=lambda c: self._uses[c])
            self._uses[colour] += 1
            self._badges[request.request_id] = Badge(letter_of(request.index), colour)
        for finish in record.events.finished:
            self._uses[self._badges[finish.request_id].colour] -= 1
