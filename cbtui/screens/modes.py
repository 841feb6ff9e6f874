"""All modes to choose from, each with a sentence."""

from __future__ import annotations

from cbtui.screens.confirm import Answer, AskScreen
from engine.scheduling.modes import MODES


def ask_mode(current: str) -> AskScreen[str]:
    """The screen that asks for a mode; dismissed with its name."""
    width = max(map(len, MODES))
    answers = [
        Answer(
            (str(number),),
            str(number),
            f"{name.ljust(width)}  {mode.summary}{'  (now)' if name == current else ''}",
            name,
        )
        for number, (name, mode) in enumerate(MODES.items(), 1)
    ]
    return AskScreen("Mode", "Nothing is restarted; only what happens next changes.", answers)
