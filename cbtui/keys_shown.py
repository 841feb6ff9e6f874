"""Which keys help and the bottom line name, in which order, as the user has them. Pure."""

from __future__ import annotations

from collections.abc import Callable

from cbtui.keys import (
    APP_KEYS,
    CURSOR_KEY,
    FRONT_KEY,
    LEAVE_KEYS,
    LESSON_KEYS,
    LIVE_KEY,
    OVERLAY_KEYS,
    PALETTE_KEY,
    PROMPT_KEYS,
    RACE_KEYS,
    SCREEN_KEYS,
    SETTINGS_KEYS,
    TAB_KEY,
    TEXT_KEYS,
    Key,
)

#: Gives a key as the user has it.
Remap = Callable[[Key], Key]


def as_made(key: Key) -> Key:
    """A key as this table has it."""
    return key


_HELPED = (
    *SCREEN_KEYS, *PROMPT_KEYS, TAB_KEY, CURSOR_KEY, *APP_KEYS, PALETTE_KEY, *RACE_KEYS, *LESSON_KEYS,
    FRONT_KEY, *OVERLAY_KEYS, *TEXT_KEYS, *SETTINGS_KEYS,
)  # fmt: skip


#: What help says of a key that can do nothing with what is on the screen.
NOT_HERE = " (not here)"


def in_help(
    group: str, remap: Remap = as_made, left_out: Callable[[Key], object] = lambda _: False
) -> list[tuple[str, str]]:
    """What help lists under a heading: keys as written, and a sentence. Keys that join stand together.

    Args:
        left_out: whether a key can do nothing now.
    """
    found: list[tuple[str, str]] = []
    for key in map(remap, _HELPED):
        if key.group != group:
            continue
        written = "  ".join(filter(None, (key.shown, key.typing)))
        words = key.tooltip if key.help is None else key.help
        if words:
            found.append((written, words + NOT_HERE if left_out(key) else words))
        elif key.joins and written:
            before, sentence = found[-1]
            found[-1] = (f"{before} {written}", sentence)
    return found


def in_bottom_line(*, is_typing: bool, is_live: bool = True, remap: Remap = as_made) -> list[Key]:
    """The keys the bottom line may name, in its order; the way back to now where it is needed only."""
    if is_typing:
        candidates = (LEAVE_KEYS[0], *SCREEN_KEYS, *PROMPT_KEYS[1:], TAB_KEY, *APP_KEYS)
        return [key for key in map(remap, candidates) if key.label and key.typing]
    named = [key for key in (*SCREEN_KEYS, *APP_KEYS) if key is not LIVE_KEY]
    shown = named if is_live else [LIVE_KEY, *named]
    return [key for key in map(remap, shown) if key.label and key.shown]
