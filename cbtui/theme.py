"""The screen's own colours: neutrals and one accent.

Request colours (`naming.PALETTE`) mean requests and nothing else, so the accent is a hue none of them
has, and everything that is not a request is a shade of grey.
"""

from __future__ import annotations

from textual.theme import Theme

ACCENT = "#6fe0cf"
_GROUND = "#0e1116"
_LINE = "#2b323c"
_TEXT = "#d5dbe3"

CBTUI_DARK = Theme(
    name="cbtui-dark",
    primary=ACCENT,
    secondary="#7d8794",
    accent=ACCENT,
    foreground=_TEXT,
    background=_GROUND,
    surface="#151a21",
    panel="#1a2029",
    boost="#1f2630",
    success="#9fd3b6",
    warning="#e8c07d",
    error="#f08a80",
    dark=True,
    variables={
        "border": ACCENT,
        "border-blurred": _LINE,
        "block-cursor-background": "#23403f",
        "block-cursor-foreground": _TEXT,
        "block-cursor-text-style": "none",
        "block-hover-background": "#1f2630",
        "footer-background": _GROUND,
        "footer-foreground": "#8d97a5",
        "footer-key-foreground": ACCENT,
        "footer-description-foreground": "#8d97a5",
        "input-cursor-background": ACCENT,
        "input-cursor-foreground": _GROUND,
        "input-selection-background": "#23403f",
        "scrollbar": "#2b323c",
        "scrollbar-hover": "#3a4350",
        "scrollbar-active": ACCENT,
        "scrollbar-background": _GROUND,
        "scrollbar-background-hover": _GROUND,
        "scrollbar-background-active": _GROUND,
        "scrollbar-corner-color": _GROUND,
    },
)
