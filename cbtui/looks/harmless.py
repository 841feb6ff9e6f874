"""The last look at text on its way to a terminal: nothing in it may be an order to the terminal.

Whoever draws a prompt, an output, a name or a message makes it visible first (`looks.tokens`); this is the
guard behind all of them, for what nobody thought of. It keeps the cells a text takes, so that whatever was
laid out stays where it is.
"""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size

#: Beside ASCII's own controls, which JSON escapes anyway: C1 controls, and what is not to be seen.
_UNSEEN = re.compile(r"[^\x00-\x7e]")


def harmless(text: str, kept: str = "") -> str:
    """The text in as many cells without control, format and other characters that cannot be printed.

    Args:
        kept: characters that stay nevertheless, such as line breaks.
    """
    if text.isprintable():
        return text
    shown = "".join(
        character if character.isprintable() or character in kept else " " * min(1, cell_len(character))
        for character in text
    )
    cells = cell_len(text)
    return shown if cell_len(shown) == cells else set_cell_size(shown, cells)


def harmless_json(text: str) -> str:
    """A JSON text that says the same with every character that cannot be printed as its escape."""
    return text if text.isprintable() else _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
