"""Pictures must not depend on the terminal, locale or settings of whoever runs the tests."""

from __future__ import annotations

import os

import pytest
from textual import constants

#: What Textual, rich and the C library read.
_READ = ("TEXTUAL_", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLORTERM", "COLUMNS", "LINES", "LANG", "LC_")
#: The plugin's own: where it collects what failed.
_KEPT = "TEXTUAL_SNAPSHOT"
#: Textual reads its own variables once, when it is imported, so here they are put back one by one.
_CONSTANTS: dict[str, object] = {
    "COLOR_SYSTEM": "truecolor",
    "DEFAULT_THEME": "textual-dark",
    "FILTERS": "",
    "PRESS": "",
    "SCREENSHOT_DELAY": -1,
    "SMOOTH_SCROLL": True,
    "TEXTUAL_ANIMATIONS": "none",
}


@pytest.fixture(autouse=True)
def neutral_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment for every picture."""
    for name in list(os.environ):
        if name.startswith(_READ) and not name.startswith(_KEPT):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    for name, value in _CONSTANTS.items():
        monkeypatch.setattr(constants, name, value)
