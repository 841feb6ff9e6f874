"""All modes to choose from, each with a sentence."""

from __future__ import annotations

from cbtui.screens.confirm import Answer, AskScreen
from engine.scheduling.modes import MODES


def ask_mode(current: str) -> AskScreen[str]:
    """The screen that asks for a mode; dismissed with its name."""
    answers = [
        Answer((str(number),), str(number), name, name, mode.summary + (" (now)" if name == current else ""))
        for number, (name, mode) in enumerate(MODES.items(), 1)
    ]
    return AskScreen("Mode", "Nothing is restarted; only what happens next changes.", answers)
