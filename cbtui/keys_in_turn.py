"""Keys handed on one at a time, so that each goes where the one before it has led.

Textual hands a key to what has focus as soon as it is read, and looks for its meaning later, once it has
bubbled up to the app. Keys that arrive together (typed fast, pasted into the terminal) would all go to the
screen of the first one, even where that opens another in front. Knows nothing of what a key means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen

#: What a keyboard sends.
Typed = events.Key | events.Paste


def apart(key: Typed) -> tuple[Typed, ...]:
    """Esc and a letter typed right after it, which a terminal sends as it sends Alt and the letter."""
    if (
        isinstance(key, events.Key)
        and key.key.startswith("alt+")
        and key.character
        and key.character.isalpha()
    ):
        return events.Key("escape", None), events.Key(key.character, key.character)
    return (key,)


class KeysInTurn:
    """The keys of an app that wait for the one before them.

    Args:
        app: whose keys they are.
        hand_on: does with a key what Textual does with it at once.
    """

    def __init__(self, app: App[None], hand_on: Callable[[Typed], Awaitable[None]]) -> None:
        self._app = app
        self._hand_on = hand_on
        self._waiting: deque[Typed] = deque()
        self._is_under_way = False

    @property
    def is_idle(self) -> bool:
        """Whether every key taken so far has done what it does."""
        return not self._is_under_way

    async def take(self, key: Typed) -> None:
        """Hand a key on, now or once all before it have done what they do."""
        self._waiting.append(key)
        if not self._is_under_way:
            await self._next()

    async def _next(self) -> None:
        self._is_under_way = bool(self._waiting)
        if not self._waiting:
            return
        app = self._app
        target = app.focused or app.screen
        await self._hand_on(self._waiting.popleft())
        # The key bubbles from its target up to the app, which runs its action; what the action posts
        # takes the same way once more.
        way = [*(node for node in target.ancestors_with_self if node is not app), app]
        self._follow([*way, *way])

    def _follow(self, way: list[MessagePump]) -> None:
        """Queue up behind the key at every stop of its way; one that is closed has nothing to wait for."""
        while way:
            stop = way.pop(0)
            if stop.call_later(self._follow, way):
                return
        self._wait_for(self._app.screen)

    def _wait_for(self, screen: Screen[object]) -> None:
        """Until the screen in front is there and a part of it has focus; it may have opened another one."""
        if not screen.call_later(self._is_there, screen):
            self._app.call_later(self._next)

    def _is_there(self, screen: Screen[object]) -> None:
        if screen is self._app.screen:
            self._app.call_later(self._next)
        else:
            self._wait_for(self._app.screen)
