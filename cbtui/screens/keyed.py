"""A screen of its own keys, named in its bottom line from the one table of keys."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import on
from textual.screen import Screen

from cbtui.keymap import Keymap, remapped
from cbtui.keys import APP_KEYS, Key
from cbtui.keys_shown import Remap
from cbtui.widgets.key_bar import KeyBar, KeyClicked


def as_the_user_has(keymap: Keymap) -> Remap:
    """Gives keys as a keymap has them."""
    return partial(remapped, keymap=keymap)


class KeyedScreen(Screen[int | None]):
    """The base of the race and of the lessons."""

    #: What it answers to, apart from the program's own keys.
    KEYS: ClassVar[tuple[Key, ...]] = ()

    def make_key_bar(self) -> KeyBar:
        """Its bottom line."""
        keymap: Keymap = getattr(self.app, "user_keys", {})
        return KeyBar((*self.KEYS, *APP_KEYS), remap=as_the_user_has(keymap), id="keys")

    def show_keys(self, *, is_paused: bool = False) -> None:
        """Name the keys that work now."""
        keys = [key for key in self.KEYS if self._works(key)]
        self.query_one(KeyBar).show_keys((*keys, *APP_KEYS), is_paused=is_paused)

    def _works(self, key: Key) -> bool:
        return self.check_action(key.action.partition("(")[0], ()) is True

    @on(KeyClicked)
    async def _key_clicked(self, event: KeyClicked) -> None:
        is_apps = any(event.key.id == key.id for key in APP_KEYS)
        await (self.app if is_apps else self).run_action(event.key.action)
