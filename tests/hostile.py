"""Texts that would be orders to a terminal, or markup, if anybody let them."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = (
    "\x1b]0;a title\x07",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J\x1b[H\x1b[31mred\x1b[?1049l\x1b[6n",
    "\x1bP1$r\x1b\\\x1b_apc\x1b\\\x1bc",
    "\x9b2J\x9d0;a title\x9c\x90dcs\x9c",
    "\x00\x07\x08\x0b\x0c\x0e\x7f\x85",
    "one\r\ntwo\rover\ttab",
    "\u202egnp.exe\u2066\u2069\u200f\u061c",
    "\u2028\u2029\ufeff\u200b\U000e0041\U000e007f\ufff9",
    "[bold red]markup[/] [link=https://evil.example]x[/link] [@click=app.quit]quit[/] [",
    "e\u0301" + "\u0301" * 40,
)

#: Any text, with more of what terminals act on than chance would bring.
hostile_text = st.lists(
    st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=12), min_size=1, max_size=3
).map("".join)


def orders(text: str) -> str:
    """The characters in a text that a terminal might act on, or that cannot be seen."""
    return "".join(character for character in text if not character.isprintable())
