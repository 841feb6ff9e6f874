"""SVG pictures of the screen as PNG, painted by a browser; and several of them as an animation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from tests.browser.chromium import Browser

#: Fonts with every character the screen draws, of one width; the first that the machine has.
FONTS = "'Cascadia Mono', 'DejaVu Sans Mono', Menlo, monospace"


def painted(browser: Browser, svg: str, width: int) -> bytes:
    """A picture as PNG, so many pixels wide."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)  # they would be fetched from somewhere
    svg = re.sub(r"font-family:\s*[^;]*;", f"font-family: {FONTS};", svg)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    height = round(width * float(box[2]) / float(box[1]))
    browser.send(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )
    browser.send("Emulation.setDefaultBackgroundColorOverride", color={"r": 0, "g": 0, "b": 0, "a": 0})
    browser.show(f"<style>body{{margin:0}}svg{{display:block;width:{width}px}}</style>{svg}")
    return browser.png()


def animation(frames: Sequence[tuple[bytes, int]], path: Path) -> None:
    """Write PNG frames, each shown for so many milliseconds, as a GIF with one palette."""
    from PIL import Image

    pictures = [Image.open(BytesIO(data)).convert("RGB") for data, _ in frames]
    # A palette of the frames that differ most from each other would do; every eighth is near enough.
    sample = Image.new("RGB", (pictures[0].width, pictures[0].height * len(pictures[::8])))
    for number, picture in enumerate(pictures[::8]):
        sample.paste(picture, (0, number * picture.height))
    palette = sample.quantize(128, method=Image.Quantize.MEDIANCUT)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    flat[0].save(
        path, save_all=True, append_images=flat[1:], duration=[ms for _, ms in frames], loop=0, optimize=True
    )
