"""Contrast, and the styles that follow from a badge. Pure; knows nothing of widgets or themes.

Three rules keep request colours legible on any theme:

- a badge is a coloured ground with black or white text, whichever contrasts more (always >= 4.5);
- as the colour of *text* a request colour is used only where it reaches 4.5 on that background, otherwise
  the theme's own foreground stands in (letters say whose it is);
- solid shapes (blocks, bars) need only 3.0, and a colour that misses it is shifted towards black or white,
  keeping its hue.

Contrast is WCAG 2's ratio of relative luminances, 1 to 21.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style
from textual.style import Style as ContentStyle

from cbtui.telling.naming import Badge

#: WCAG 2 level AA: text, and large shapes.
TEXT_CONTRAST = 4.5
SHAPE_CONTRAST = 3.0


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue (0-255) of `#rrggbb`; an alpha (`#rrggbbaa`) is ignored.

    Raises:
        ValueError: not of that form.
    """
    if len(colour) not in (7, 9) or colour[0] != "#":
        raise ValueError(f"not a #rrggbb colour: {colour!r}")
    value = int(colour[1:7], 16)
    return value >> 16, value >> 8 & 255, value & 255


@lru_cache(maxsize=1024)
def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, 0 (black) to 1 (white)."""

    def linear(channel: int) -> float:
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = rgb(colour)
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two `#rrggbb` colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mix(one: str, other: str, share: float) -> str:
    """`one` with `share` (0-1) of `other` in it, as `#rrggbb`."""
    channels = (round(a + (b - a) * share) for a, b in zip(rgb(one), rgb(other), strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def text_on(ground: str) -> str:
    """Black or white, whichever is easier to read on that ground."""
    return max("#000000", "#ffffff", key=lambda text: contrast(text, ground))


@lru_cache(maxsize=1024)
def shape_colour(colour: str, background: str) -> str:
    """`colour`, or the nearest shade of it that stands out from `background` as a solid shape."""
    target = text_on(background)
    for step in range(20):
        shade = mix(colour, target, step / 20)
        if contrast(shade, background) >= SHAPE_CONTRAST:
            return shade
    return target


@lru_cache(maxsize=256)
def badge_style(badge: Badge | str) -> Style:
    """A badge's style for Segments and Strips: black or white bold text on the request's colour.

    Takes the badge or its colour.
    """
    ground = _ground(badge)
    return Style(color=text_on(ground), bgcolor=ground, bold=True)


@lru_cache(maxsize=256)
def badge_content_style(badge: Badge | str) -> ContentStyle:
    """The same for Textual's `Content`."""
    ground = _ground(badge)
    return ContentStyle.parse(f"bold {text_on(ground)} on {ground}")


def ink_style(colour: str, background: str) -> Style:
    """Text in a request's colour where that is legible on `background`; else no colour of its own."""
    return Style(color=colour) if contrast(colour, background) >= TEXT_CONTRAST else Style()


def block_style(colour: str, background: str) -> Style:
    """Solid shapes (`█ ▒ ░ ▄`) in a request's colour, as near to it as stands out from `background`."""
    return Style(color=shape_colour(colour, background))


def _ground(badge: Badge | str) -> str:
    return badge if isinstance(badge, str) else badge.colour
