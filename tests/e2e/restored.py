"""Whether a terminal was given back as it was."""

from __future__ import annotations

import re

from terminal import Terminal

#: What Textual switches on, and must switch off again: alternate screen, hidden cursor, mouse, paste.
MODES = {"1049": "h", "25": "l", "1000": "h", "1003": "h", "1006": "h", "2004": "h"}


def assert_restored(terminal: Terminal) -> None:
    assert terminal.settings == terminal.settings_before, "echo, line mode and signals are as before"
    last = {}
    for modes, switch in re.findall(rb"\x1b\[\?([\d;]+)([hl])", terminal.output):
        for mode in modes.decode().split(";"):
            last[mode] = switch.decode()
    for mode, on in MODES.items():
        if mode in last:
            assert last[mode] != on, f"terminal mode {mode} was left {on!r}"
    assert last.get("1049") == "l", "back from the alternate screen"
