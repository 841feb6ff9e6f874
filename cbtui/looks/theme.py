"""The screen's own colours, three times: dark, light and high contrast. Neutrals and one accent each.

Request colours (`naming.PALETTE`) mean requests and nothing else, so the accent is a hue none of them
has, and everything that is not a request is a shade of grey.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.theme import Theme


@dataclass(frozen=True, slots=True)
class _Shades:
    """What a theme is made from.

    Attributes:
        ground, surface, panel, boost: grounds, from the farthest to the nearest.
        text, quiet: text, and text that may be overlooked.
        line, line_near: boxes and scroll bars, idle and under the mouse.
        accent, chosen: where the keyboard is, and the ground of what is chosen there.
        success, warning, error: what their names say.
    """

    ground: str
    surface: str
    panel: str
    boost: str
    text: str
    quiet: str
    line: str
    line_near: str
    accent: str
    chosen: str
    success: str
    warning: str
    error: str


def _theme(name: str, shades: _Shades, *, dark: bool) -> Theme:
    return Theme(
        name=name,
        primary=shades.accent,
        secondary=shades.quiet,
        accent=shades.accent,
        foreground=shades.text,
        background=shades.ground,
        surface=shades.surface,
        panel=shades.panel,
        boost=shades.boost,
        success=shades.success,
        warning=shades.warning,
        error=shades.error,
        dark=dark,
        variables={
            "border": shades.accent,
            "border-blurred": shades.line,
            "block-cursor-background": shades.chosen,
            "block-cursor-foreground": shades.text,
            "block-cursor-text-style": "none",
            "block-hover-background": shades.boost,
            "footer-background": shades.ground,
            "footer-foreground": shades.quiet,
            "footer-key-foreground": shades.accent,
            "footer-description-foreground": shades.quiet,
            "input-cursor-background": shades.accent,
            "input-cursor-foreground": shades.ground,
            "input-selection-background": shades.chosen,
            "scrollbar": shades.line,
            "scrollbar-hover": shades.line_near,
            "scrollbar-active": shades.accent,
            "scrollbar-background": shades.ground,
            "scrollbar-background-hover": shades.ground,
            "scrollbar-background-active": shades.ground,
            "scrollbar-corner-color": shades.ground,
        },
    )


CBTUI_DARK = _theme(
    "cbtui-dark",
    _Shades(
        ground="#0e1116",
        surface="#151a21",
        panel="#1a2029",
        boost="#1f2630",
        text="#d5dbe3",
        quiet="#8d97a5",
        line="#2b323c",
        line_near="#3a4350",
        accent="#6fe0cf",
        chosen="#23403f",
        success="#9fd3b6",
        warning="#e8c07d",
        error="#f08a80",
    ),
    dark=True,
)
CBTUI_LIGHT = _theme(
    "cbtui-light",
    _Shades(
        ground="#fbfbf9",
        surface="#f1f2f0",
        panel="#e6e9e8",
        boost="#dde2e1",
        text="#1c232b",
        quiet="#5a6470",
        line="#c3c9cd",
        line_near="#9aa4ab",
        accent="#00695c",
        chosen="#bfe3dc",
        success="#1b6b3a",
        warning="#8a5000",
        error="#b3261e",
    ),
    dark=False,
)
#: Nothing is dimmer than it must be: text on black, boxes that are seen, one bright accent.
CBTUI_CONTRAST = _theme(
    "cbtui-high-contrast",
    _Shades(
        ground="#000000",
        surface="#000000",
        panel="#1c1c1c",
        boost="#2a2a2a",
        text="#ffffff",
        quiet="#d8d8d8",
        line="#9a9a9a",
        line_near="#ffffff",
        accent="#5fffe1",
        chosen="#00574c",
        success="#8cffb0",
        warning="#ffd75f",
        error="#ff9d94",
    ),
    dark=True,
)

#: By the names people use.
THEMES: dict[str, Theme] = {
    "dark": CBTUI_DARK,
    "light": CBTUI_LIGHT,
    "high-contrast": CBTUI_CONTRAST,
}
