"""A run as one HTML page that needs nothing else: timeline, mask, row and slots of any step.

The page loads nothing from anywhere, and its content policy forbids it to. What was recorded travels as
compressed data and gets into the page as text only, so that no prompt can be markup or script.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from html import escape
from importlib.resources import files

import msgspec

from cbtui.export.page_data import page_data
from cbtui.export.run import RecordedRun
from cbtui.looks.theme import CBTUI_DARK, CBTUI_LIGHT
from cbtui.looks.tokens import prose
from cbtui.telling.words import count


def page(run: RecordedRun) -> str:
    """The whole page."""
    here = files(__package__)
    style = _variables() + (here / "page.css").read_text("utf-8")
    script = (here / "page.js").read_text("utf-8")
    data = zlib.compress(msgspec.json.encode(page_data(run)), 6)
    parts = {
        "policy": _policy(script, style),
        "title": escape(_title(run)),
        "style": style,
        "data": base64.b64encode(data).decode(),
        "script": script,
    }
    text = (here / "page.html").read_text("utf-8")
    # In one go: what was put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text)


def _title(run: RecordedRun) -> str:
    return f"cbtui: {count(len(run.steps), 'step')} of {prose(run.header.model)}, {', '.join(run.modes)}"


def _policy(script: str, style: str) -> str:
    """Nothing but this very script and this very style."""

    def allowed(text: str) -> str:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    return (
        f"default-src 'none'; script-src {allowed(script)}; style-src {allowed(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _variables() -> str:
    """The screen's colours, light and dark; the reader's system chooses, or the button."""

    themes = []
    for theme in (CBTUI_LIGHT, CBTUI_DARK):
        shades = {
            "ground": theme.background,
            "surface": theme.surface,
            "panel": theme.panel,
            "boost": theme.boost,
            "text": theme.foreground,
            "quiet": theme.secondary,
            "line": theme.variables["border-blurred"],
            "accent": theme.accent,
            "chosen": theme.variables["block-cursor-background"],
            "warn": theme.warning,
            "bad": theme.error,
        }
        themes.append("".join(f"--{name}:{value};" for name, value in shades.items()))
    light, dark = themes
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
    )
