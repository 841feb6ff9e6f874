"""Text that a server wrote, made harmless: it is data, and may reach a terminal in a name or a message."""

from __future__ import annotations

#: The longest text that is shown of a name or a message.
MOST = 400


def harmless(text: str) -> str:
    """The text on one line, its tabs and line breaks as spaces, without control characters (escape
    sequences, bidi marks), clipped."""
    text = "".join(
        character if character.isprintable() else " " if character.isspace() else "\ufffd"
        for character in text[: MOST + 1]
    )
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
