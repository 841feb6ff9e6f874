"""A user's own keys: which ids there are, whether the keys exist, and whether two things share one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from textual.keys import KEY_ALIASES, KEY_NAME_REPLACEMENTS, Keys, key_to_character

from cbtui.keys import LEVELS, Key

Keymap = Mapping[str, str]

_NAMED = {
    *(key.value for key in Keys),
    *(name for names in KEY_ALIASES.values() for name in names),
    *KEY_NAME_REPLACEMENTS.values(),
}
#: Textual's short names of signs, which it does not turn back itself.
_SIGNS = {"plus": "+", "minus": "-", "comma": ",", "slash": "/", "colon": ":"}
_MODIFIERS = ("ctrl", "shift", "alt", "super", "meta")


class KeymapError(ValueError):
    """A line of a keymap that cannot work: `id` says which, the message why."""

    def __init__(self, id: str, message: str) -> None:
        super().__init__(message)
        self.id = id


def remappable() -> dict[str, Key]:
    """Every key a user may move, by id."""
    return {key.id: key for level in LEVELS for key in level}


def check_keymap(keymap: Keymap) -> None:
    """See that ids and keys exist, and that no key means two things.

    Raises:
        KeymapError: which line is wrong, and how.
    """
    known = remappable()
    for id, keys in keymap.items():
        if id not in known:
            close = difflib.get_close_matches(id, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "; `cbtui settings` lists them"
            raise KeymapError(id, f"there is no key {id!r}{hint}")
        for key in keys.split(","):
            if not _exists(key.strip()):
                raise KeymapError(id, f"there is no key called {key.strip()!r} on a keyboard")
    for level in LEVELS:
        owners: dict[str, str] = {}
        for found in level:
            for key in _names(keymap.get(found.id, found.keys)):
                other = owners.setdefault(key, found.id)
                if other != found.id:
                    id = found.id if found.id in keymap else other
                    raise KeymapError(id, f"{other} and {found.id} would share the key {key!r}")


def _exists(key: str) -> bool:
    *modifiers, last = key.split("+") if key != "+" else [key]
    if not last or any(modifier not in _MODIFIERS for modifier in modifiers):
        return False
    if last.startswith("upper_") and len(last) == len("upper_m"):
        return True
    return len(last) == 1 or last in _NAMED or key in _NAMED or key_to_character(last) is not None


def _names(keys: str) -> list[str]:
    """Textual's names of some keys: `?` is `question_mark`."""
    from textual.keys import _character_to_key

    return [_character_to_key(key) if len(key) == 1 else key for key in map(str.strip, keys.split(","))]


def written(key: str) -> str:
    """A key as a person writes it: `question_mark` is `?`, `f5` is `F5`."""
    if len(key) > 1 and key[0] == "f" and key[1:].isdigit():
        return key.upper()
    if "+" in key:
        return key
    if key.startswith("upper_"):
        return key[-1].upper()
    character = _SIGNS.get(key) or key_to_character(key)
    return character if character and character.isprintable() and character != " " else key


def written_keys(key: Key) -> str:
    """All that a key can be pressed as, for a person to read: `space F5`."""
    return key.shown or key.typing or " ".join(written(one) for one in key.keys.split(","))


def remapped(key: Key, keymap: Keymap) -> Key:
    """A key as the user has it: its keys, and how they are written."""
    if key.id not in keymap:
        return key
    names = _names(keymap[key.id])
    # While typing only those keys work that write nothing.
    silent = [name for name in names if "+" in name or (name[0] == "f" and name[1:].isdigit())]
    single = [name for name in names if name not in silent]
    return replace(
        key,
        keys=",".join(names),
        shown=written(single[0]) if single else (written(silent[0]) if silent and not key.typing else ""),
        typing=written(silent[0]) if silent else "",
    )
