"""A screen in front of the main one that shows something live of its own."""

from __future__ import annotations

from textual.screen import Screen


class LookingScreen(Screen[None]):
    """The app asks it to look for news at every tick while it is the active screen."""

    def look(self) -> None:
        """Take in what is new and draw it."""
        raise NotImplementedError
